# The C twins of message_bytes.py, for the kernels that cimport them. Who calls them checks the bounds.

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

cdef extern from "message_bytes.h" nogil:
    Py_ssize_t batch_size_at(const unsigned char *data, Py_ssize_t position, Py_ssize_t end)
    int16_t int16_at(const unsigned char *data, Py_ssize_t position)
    int32_t int32_at(const unsigned char *data, Py_ssize_t position)
    uint32_t uint32_at(const unsigned char *data, Py_ssize_t position)
    int64_t int64_at(const unsigned char *data, Py_ssize_t position)
    void put_int16(unsigned char *out, Py_ssize_t position, int64_t value)
    void put_int32(unsigned char *out, Py_ssize_t position, int64_t value)
    void put_uint32(unsigned char *out, Py_ssize_t position, uint32_t value)
    void put_int64(unsigned char *out, Py_ssize_t position, int64_t value)
    void put_v0_head(unsigned char *out, Py_ssize_t position, int64_t offset, int64_t size, int attributes,
                     int64_t key_length)
    void put_v1_head(unsigned char *out, Py_ssize_t position, int64_t offset, int64_t size, int attributes,
                     int64_t timestamp, int64_t key_length)
    void put_v2_head(unsigned char *out, Py_ssize_t position, int64_t base_offset, int64_t length, int attributes,
                     int64_t last_offset_delta, int64_t base_timestamp, int64_t max_timestamp, int64_t record_count)
    void copy_bytes(unsigned char *out, Py_ssize_t position, const unsigned char *data, Py_ssize_t start,
                    Py_ssize_t size_bytes)
