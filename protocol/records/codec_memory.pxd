# The C twins of codec_memory.py, which has their docstrings.

from libc.stdint cimport uint32_t

cdef extern from "codec_memory.h" nogil:
    Py_ssize_t HEAD_ROOM
    Py_ssize_t LZ_OUT_IS_FULL
    ctypedef struct CodecMemory:
        unsigned char *raw
        unsigned char *converted
        unsigned char *encoded
        Py_ssize_t raw_capacity
        Py_ssize_t converted_capacity
        uint32_t crc

    bint reserve_memory(CodecMemory *memory, Py_ssize_t raw_bytes, Py_ssize_t record_count)
    void release_memory(CodecMemory *memory)
    Py_ssize_t read_content(CodecMemory *memory, int codec, const unsigned char *data, Py_ssize_t size)
    void note_message(CodecMemory *memory, Py_ssize_t at, Py_ssize_t key_from, Py_ssize_t key_to, Py_ssize_t value_from,
                      Py_ssize_t value_to, Py_ssize_t value_bytes)
    Py_ssize_t write_content(CodecMemory *memory, int codec, bint is_v0, Py_ssize_t size, uint32_t crc)
