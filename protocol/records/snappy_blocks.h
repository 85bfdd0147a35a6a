/* snappy blocks, alone or in the framing of xerial's library, which Kafka's Java clients write. */

#ifndef GREGOR_SNAPPY_BLOCKS_H
#define GREGOR_SNAPPY_BLOCKS_H

#include "lz_matches.h"

#define SNAPPY_LEAST_MATCH 4
#define SNAPPY_MOST_DISTANCE 65535
#define XERIAL_HEAD 16
#define XERIAL_BLOCK_BYTES 32768

static const uint8_t XERIAL_MAGIC[XERIAL_HEAD] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1};

/* Decompress one block to `out` from `at` on, and note its matches; return the position after it. */
static ptrdiff_t snappy_read_block(const uint8_t *in, size_t size, uint8_t *out, size_t at, size_t capacity,
                                   lz_match *found, size_t *count) {
    size_t begin = at, position = 0, first = *count;
    uint64_t promised = 0;
    for (int shift = 0;; shift += 7) {
        if (position >= size || shift > 28)
            return LZ_MALFORMED;
        promised |= (uint64_t)(in[position] & 0x7F) << shift;
        if (in[position++] < 0x80)
            break;
    }
    if (promised > capacity - at)
        return LZ_OUT_IS_FULL;
    size_t end = at + (size_t)promised;
    while (position < size) {
        unsigned tag = in[position++];
        size_t length, distance, fields;
        if ((tag & 3) == 0) {
            length = tag >> 2;
            if (length >= 60) {
                fields = length - 59;
                if (fields > size - position)
                    return LZ_MALFORMED;
                length = 0;
                for (size_t index = 0; index < fields; index++)
                    length |= (size_t)in[position + index] << 8 * index;
                position += fields;
            }
            length++;
            if (length > size - position || length > end - at)
                return LZ_MALFORMED;
            lz_copy_literals(out + at, in + position, length, in + size);
            at += length;
            position += length;
            continue;
        }
        fields = (tag & 3) == 3 ? 4 : tag & 3;
        if (fields > size - position)
            return LZ_MALFORMED;
        if ((tag & 3) == 1) {
            length = (tag >> 2 & 7) + 4;
            distance = (size_t)(tag >> 5) << 8 | in[position];
        } else {
            length = (tag >> 2) + 1;
            distance = in[position] | (size_t)in[position + 1] << 8;
            if (fields == 4)
                distance |= (size_t)in[position + 2] << 16 | (size_t)in[position + 3] << 24;
        }
        position += fields;
        if (distance == 0 || distance > at - begin || length > end - at)
            return LZ_MALFORMED;
        lz_copy_match(out, at, distance, length);
        lz_match *last = found + *count - 1;
        if (*count > first && last->distance == distance && last->at + last->length == at) {
            last->length += (uint32_t)length;
        } else if (length >= SNAPPY_LEAST_MATCH) {
            lz_match *row = found + (*count)++;
            row->at = (uint32_t)at;
            row->length = (uint32_t)length;
            row->distance = (uint32_t)distance;
        }
        at += length;
    }
    return at == end ? (ptrdiff_t)at : LZ_MALFORMED;
}

/* Decompress a block or framed blocks; return the size of the content. `found` has room for a quarter of `capacity`.
   Streams that follow the first one count as malformed. */
static ptrdiff_t snappy_read(const uint8_t *in, size_t size, uint8_t *out, size_t capacity, lz_match *found,
                             size_t *count) {
    if (size < XERIAL_HEAD || memcmp(in, XERIAL_MAGIC, 8) != 0)
        return snappy_read_block(in, size, out, 0, capacity, found, count);
    size_t position = XERIAL_HEAD;
    ptrdiff_t at = 0;
    while (position < size) {
        if (size - position < 4)
            return LZ_MALFORMED;
        uint32_t block = (uint32_t)in[position] << 24 | (uint32_t)in[position + 1] << 16 |
                         (uint32_t)in[position + 2] << 8 | in[position + 3];
        position += 4;
        if (block == 0 || block > size - position)
            return LZ_MALFORMED;
        at = snappy_read_block(in + position, block, out, (size_t)at, capacity, found, count);
        if (at < 0)
            return at;
        position += block;
    }
    return at;
}

static inline size_t snappy_bound(size_t size) {
    return size + size / 6 + (size / XERIAL_BLOCK_BYTES + 1) * 40 + XERIAL_HEAD + LZ_SLACK;
}

static inline uint8_t *snappy_put_literals(uint8_t *to, const uint8_t *bytes, uint32_t from, uint32_t end,
                                           uint32_t size) {
    uint32_t literals = end - from;
    if (literals <= 32 && size - from >= 32) {
        /* Also for no literals: whether there are some cannot be predicted. */
        *to = (uint8_t)((literals - 1) << 2);
        to += literals > 0;
        memcpy(to, bytes + from, 32);
        return to + literals;
    }
    if (literals == 0)
        return to;
    if (literals <= 60) {
        *to++ = (uint8_t)(literals - 1) << 2;
    } else if (literals <= 256) {
        *to++ = 60 << 2;
        *to++ = (uint8_t)(literals - 1);
    } else {
        *to++ = 61 << 2;
        *to++ = (uint8_t)(literals - 1);
        *to++ = (uint8_t)((literals - 1) >> 8);
    }
    memcpy(to, bytes + from, literals);
    return to + literals;
}

static inline uint8_t *snappy_put_match(uint8_t *to, uint32_t length, uint32_t distance) {
    while (length > 64) {
        uint32_t piece = length < 68 ? 60 : 64;
        *to++ = (uint8_t)(2 | (piece - 1) << 2);
        *to++ = (uint8_t)distance;
        *to++ = (uint8_t)(distance >> 8);
        length -= piece;
    }
    /* Two bytes or three, which cannot be predicted. */
    uint32_t is_short = (length < 12) & (distance < 2048);
    uint32_t as_short = 1 | (length - 4) << 2 | distance >> 8 << 5 | (distance & 0xFF) << 8;
    uint32_t bits = is_short ? as_short : (2 | (length - 1) << 2 | distance << 8);
    to[0] = (uint8_t)bits;
    to[1] = (uint8_t)(bits >> 8);
    to[2] = (uint8_t)(bits >> 16);
    return to + 3 - is_short;
}

/* Write framed blocks with snappy_bound(moved->size) bytes of room; return their size. */
static ptrdiff_t snappy_write(const lz_moved *moved, uint8_t *out) {
    uint8_t *to = out + XERIAL_HEAD;
    memcpy(out, XERIAL_MAGIC, XERIAL_HEAD);
    size_t next = 0;
    for (uint32_t at = 0; at < moved->size;) {
        uint32_t left = moved->size - at;
        uint32_t size = left < XERIAL_BLOCK_BYTES ? left : XERIAL_BLOCK_BYTES, end = at + size;
        uint8_t *start = to;
        to += 4;
        for (; size >= 0x80; size >>= 7)
            *to++ = (uint8_t)(size | 0x80);
        *to++ = (uint8_t)size;
        for (; next < moved->count && moved->rows[next].at < end; next++) {
            const lz_match *match = moved->rows + next;
            to = snappy_put_literals(to, moved->bytes, at, match->at, moved->size);
            to = snappy_put_match(to, match->length, match->distance);
            at = match->at + match->length;
        }
        to = snappy_put_literals(to, moved->bytes, at, end, moved->size);
        at = end;
        uint32_t block = (uint32_t)(to - start - 4);
        for (int index = 0; index < 4; index++)
            start[index] = (uint8_t)(block >> 8 * (3 - index));
    }
    return to - out;
}

#endif
