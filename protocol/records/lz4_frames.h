/* lz4 frames (Kafka's KIP-57): blocks of 64 kB that are compressed independently, without checksums of the content. */

#ifndef GREGOR_LZ4_FRAMES_H
#define GREGOR_LZ4_FRAMES_H

#include "lz_matches.h"

#define LZ4_LAST_LITERALS 5
#define LZ4_LAST_START 12
#define LZ4_LEAST_MATCH 4
#define LZ4_MOST_DISTANCE 65535
#define LZ4_BLOCK_BYTES 65536
#define LZ4_FRAME_HEAD 7

static inline void put_little_uint32(uint8_t *out, uint32_t value) {
    for (int index = 0; index < 4; index++)
        out[index] = (uint8_t)(value >> 8 * index);
}

/* Decompress one block to `out` from `at` on, and note its matches; return the position after it. */
static ptrdiff_t lz4_read_block(const uint8_t *in, size_t size, uint8_t *out, size_t at, size_t capacity,
                                lz_match *found, size_t *count) {
    size_t begin = at, position = 0;
    for (;;) {
        if (position >= size)
            return LZ_MALFORMED;
        unsigned token = in[position++], more;
        size_t literals = token >> 4, length = token & 15;
        if (literals == 15) {
            do {
                if (position >= size)
                    return LZ_MALFORMED;
                literals += more = in[position++];
            } while (more == 255);
        }
        if (literals > size - position)
            return LZ_MALFORMED;
        if (literals > capacity - at)
            return LZ_OUT_IS_FULL;
        lz_copy_literals(out + at, in + position, literals, in + size);
        at += literals;
        position += literals;
        if (position == size)
            return (ptrdiff_t)at;
        if (size - position < 2)
            return LZ_MALFORMED;
        size_t distance = in[position] | (size_t)in[position + 1] << 8;
        position += 2;
        if (length == 15) {
            do {
                if (position >= size)
                    return LZ_MALFORMED;
                length += more = in[position++];
            } while (more == 255);
        }
        length += LZ4_LEAST_MATCH;
        if (distance == 0 || distance > at - begin)
            return LZ_MALFORMED;
        if (length > capacity - at)
            return LZ_OUT_IS_FULL;
        lz_copy_match(out, at, distance, length);
        lz_match *row = found + (*count)++;
        row->at = (uint32_t)at;
        row->length = (uint32_t)length;
        row->distance = (uint32_t)distance;
        at += length;
    }
}

/* Compute the second byte of xxHash32 (seed 0) over fewer than 16 bytes, as the frame's header has it. */
static uint8_t lz4_header_checksum(const uint8_t *descriptor, size_t size) {
    uint32_t hashed = 0x165667B1u + (uint32_t)size;
    size_t at = 0;
    for (; at + 4 <= size; at += 4) {
        hashed += little_uint32(descriptor + at) * 0xC2B2AE3Du;
        hashed = (hashed << 17 | hashed >> 15) * 0x27D4EB2Fu;
    }
    for (; at < size; at++) {
        hashed += descriptor[at] * 0x165667B1u;
        hashed = (hashed << 11 | hashed >> 21) * 0x9E3779B1u;
    }
    hashed = (hashed ^ hashed >> 15) * 0x85EBCA77u;
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE3Du;
    return (uint8_t)((hashed ^ hashed >> 16) >> 8);
}

/* Decompress a frame; return the size of its content. `found` has room for a quarter of `capacity`. Frames with
   dependent blocks, checksums of blocks or content, or dictionaries count as malformed. */
static ptrdiff_t lz4_read(const uint8_t *in, size_t size, uint8_t *out, size_t capacity, lz_match *found,
                          size_t *count) {
    if (size < LZ4_FRAME_HEAD || memcmp(in, "\x04\x22\x4d\x18", 4) != 0 || (in[4] & ~0x08) != 0x60 ||
        (in[5] & 0x8F) != 0 || in[5] < 0x40)
        return LZ_MALFORMED;
    size_t head = in[4] & 0x08 ? LZ4_FRAME_HEAD + 8 : LZ4_FRAME_HEAD;
    if (size < head || lz4_header_checksum(in + 4, head - 5) != in[head - 1])
        return LZ_MALFORMED;
    size_t block_bytes = (size_t)1 << (8 + 2 * (in[5] >> 4)), position = head, at = 0;
    for (;;) {
        if (size - position < 4)
            return LZ_MALFORMED;
        uint32_t field = little_uint32(in + position), block = field & 0x7FFFFFFF;
        position += 4;
        if (field == 0)
            break;
        if (block > size - position || block > block_bytes)
            return LZ_MALFORMED;
        if (field >> 31) {
            if (block > capacity - at)
                return LZ_OUT_IS_FULL;
            memcpy(out + at, in + position, block);
            at += block;
        } else {
            ptrdiff_t end = lz4_read_block(in + position, block, out, at, capacity, found, count);
            if (end < 0)
                return end;
            if ((size_t)end - at > block_bytes)
                return LZ_MALFORMED;
            at = (size_t)end;
        }
        position += block;
    }
    if (in[4] & 0x08 && (little_uint32(in + 6) != at || little_uint32(in + 10) != 0))
        return LZ_MALFORMED;
    return (ptrdiff_t)at;
}

static inline size_t lz4_bound(size_t size) {
    return size + size / 255 + (size / LZ4_BLOCK_BYTES + 1) * 24 + LZ4_FRAME_HEAD + 4 + LZ_SLACK;
}

static inline uint8_t *lz4_put_length(uint8_t *to, size_t length) {
    for (; length >= 255; length -= 255)
        *to++ = 255;
    *to++ = (uint8_t)length;
    return to;
}

static inline uint8_t *lz4_put_literals(uint8_t *to, const uint8_t *bytes, uint32_t from, uint32_t end, uint32_t size,
                                        unsigned match) {
    uint32_t literals = end - from;
    *to++ = (uint8_t)((literals < 15 ? literals : 15) << 4 | match);
    if (literals >= 15)
        to = lz4_put_length(to, literals - 15);
    lz_copy_literals(to, bytes + from, literals, bytes + size);
    return to + literals;
}

/* Write a frame with lz4_bound(moved->size) bytes of room; return its size. */
static ptrdiff_t lz4_write(const lz_moved *moved, uint8_t *out, int is_v0) {
    static const uint8_t magic_and_descriptor[6] = {0x04, 0x22, 0x4D, 0x18, 0x60, 0x40};
    uint8_t *to = out + LZ4_FRAME_HEAD;
    memcpy(out, magic_and_descriptor, 6);
    /* Clients of format v0 include the magic number by mistake, and require that (KIP-57). */
    out[6] = is_v0 ? lz4_header_checksum(out, 6) : lz4_header_checksum(out + 4, 2);
    size_t next = 0;
    for (uint32_t at = 0; at < moved->size;) {
        uint32_t left = moved->size - at, begin = at;
        uint32_t end = at + (left < LZ4_BLOCK_BYTES ? left : LZ4_BLOCK_BYTES);
        uint8_t *start = to;
        to += 4;
        for (; next < moved->count && moved->rows[next].at < end; next++) {
            const lz_match *match = moved->rows + next;
            uint32_t length = match->length - LZ4_LEAST_MATCH;
            to = lz4_put_literals(to, moved->bytes, at, match->at, moved->size, length < 15 ? length : 15);
            *to++ = (uint8_t)match->distance;
            *to++ = (uint8_t)(match->distance >> 8);
            if (length >= 15)
                to = lz4_put_length(to, length - 15);
            at = match->at + match->length;
        }
        to = lz4_put_literals(to, moved->bytes, at, end, moved->size, 0);
        at = end;
        uint32_t field = (uint32_t)(to - start - 4);
        if (field >= end - begin) {
            memcpy(start + 4, moved->bytes + begin, end - begin);
            to = start + 4 + (end - begin);
            field = (end - begin) | 0x80000000u;
        }
        put_little_uint32(start, field);
    }
    put_little_uint32(to, 0);
    return to + 4 - out;
}

#endif
