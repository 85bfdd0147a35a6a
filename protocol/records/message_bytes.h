/* Reading and writing big-endian fields at a place in a buffer: what message_bytes.py does, for the compiled kernel.
   No bounds are checked here, but by batch_size_at. */

#ifndef GREGOR_MESSAGE_BYTES_H
#define GREGOR_MESSAGE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t unsigned_at(const unsigned char *data, ptrdiff_t position, int bytes) {
    uint64_t value = 0;
    for (int index = 0; index < bytes; index++)
        value = value << 8 | data[position + index];
    return value;
}

static inline int16_t int16_at(const unsigned char *data, ptrdiff_t position) {
    return (int16_t)unsigned_at(data, position, 2);
}

static inline int32_t int32_at(const unsigned char *data, ptrdiff_t position) {
    return (int32_t)unsigned_at(data, position, 4);
}

static inline uint32_t uint32_at(const unsigned char *data, ptrdiff_t position) {
    return (uint32_t)unsigned_at(data, position, 4);
}

static inline int64_t int64_at(const unsigned char *data, ptrdiff_t position) {
    return (int64_t)unsigned_at(data, position, 8);
}

/* Size of the batch at `position` with its offset and size fields; 0 if it is not all there before `end`, -1 if its
   magic or size cannot be. */
static inline ptrdiff_t batch_size_at(const unsigned char *data, ptrdiff_t position, ptrdiff_t end) {
    static const int least_size[3] = {26, 34, 61};
    if (end - position < 17)
        return 0;
    int64_t size = 12 + (int64_t)int32_at(data, position + 8);
    int magic = data[position + 16];
    if (magic > 2 || size < least_size[magic])
        return -1;
    return size <= end - position ? (ptrdiff_t)size : 0;
}

static inline void put_unsigned(unsigned char *out, ptrdiff_t position, uint64_t value, int bytes) {
    for (int index = bytes - 1; index >= 0; index--, value >>= 8)
        out[position + index] = (unsigned char)value;
}

static inline void put_int16(unsigned char *out, ptrdiff_t position, int64_t value) {
    put_unsigned(out, position, (uint64_t)value, 2);
}

static inline void put_int32(unsigned char *out, ptrdiff_t position, int64_t value) {
    put_unsigned(out, position, (uint64_t)value, 4);
}

static inline void put_uint32(unsigned char *out, ptrdiff_t position, uint32_t value) {
    put_unsigned(out, position, value, 4);
}

static inline void put_int64(unsigned char *out, ptrdiff_t position, int64_t value) {
    put_unsigned(out, position, (uint64_t)value, 8);
}

/* Fields of a v0 or v1 message up to and with its key length, the CRC left 0. */
static inline void put_v0_head(unsigned char *out, ptrdiff_t position, int64_t offset, int64_t size, int attributes,
                               int64_t key_length) {
    put_int64(out, position, offset);
    put_int32(out, position + 8, size);
    put_int32(out, position + 12, 0);
    out[position + 16] = 0;
    out[position + 17] = (unsigned char)attributes;
    put_int32(out, position + 18, key_length);
}

static inline void put_v1_head(unsigned char *out, ptrdiff_t position, int64_t offset, int64_t size, int attributes,
                               int64_t timestamp, int64_t key_length) {
    put_int64(out, position, offset);
    put_int32(out, position + 8, size);
    put_int32(out, position + 12, 0);
    out[position + 16] = 1;
    out[position + 17] = (unsigned char)attributes;
    put_int64(out, position + 18, timestamp);
    put_int32(out, position + 26, key_length);
}

/* The header of a v2 batch that no idempotent producer wrote, the CRC left 0; `length` counts from byte 12 on. */
static inline void put_v2_head(unsigned char *out, ptrdiff_t position, int64_t base_offset, int64_t length,
                               int attributes, int64_t last_offset_delta, int64_t base_timestamp,
                               int64_t max_timestamp, int64_t record_count) {
    put_int64(out, position, base_offset);
    put_int32(out, position + 8, length);
    put_int32(out, position + 12, -1);
    out[position + 16] = 2;
    put_int32(out, position + 17, 0);
    put_unsigned(out, position + 21, (uint64_t)attributes, 2);
    put_int32(out, position + 23, last_offset_delta);
    put_int64(out, position + 27, base_timestamp);
    put_int64(out, position + 35, max_timestamp);
    memset(out + position + 43, 0xFF, 14);
    put_int32(out, position + 57, record_count);
}

static inline void copy_bytes(unsigned char *out, ptrdiff_t position, const unsigned char *data, ptrdiff_t start,
                              ptrdiff_t size_bytes) {
    memcpy(out + position, data + start, (size_t)size_bytes);
}

#endif
