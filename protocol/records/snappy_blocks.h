/* snappy blocks, alone or in the framing of xerial's library, which Kafka's Java clients write. */

#ifndef GREGOR_SNAPPY_BLOCKS_H
#define GREGOR_SNAPPY_BLOCKS_H

#include "lz_matches.h"

#define SNAPPY_LEAST_MATCH 4
#define SNAPPY_MOST_DISTANCE 65535
#define XERIAL_HEAD 16
#define XERIAL_BLOCK_BYTES 32768

static const uint8_t XERIAL_MAGIC[XERIAL_HEAD] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1};

/* Where a block is being decompressed: the next element of the input, the next byte of the output, the next match. */
typedef struct {
    const uint8_t *next, *next_end;
    uint8_t *out, *begin, *to, *to_end;
    lz_match *first, *row;
} snappy_block;

/* The rows of the table below: the bytes up to the next element, the length, and the least distance, to which the
   element's further bytes are added. A literal has a distance that is always allowed; one that never is marks elements
   for snappy_read_element: long literals, and matches that are too short to be noted. */
#define SNAPPY_KIND(tag) ((tag) & 3)
#define SNAPPY_STEP(tag) (SNAPPY_KIND(tag) == 0 ? ((tag) >> 2) + 2 : SNAPPY_KIND(tag) + 1 + (SNAPPY_KIND(tag) == 3))
#define SNAPPY_LENGTH(tag) (SNAPPY_KIND(tag) == 1 ? ((tag) >> 2 & 7) + 4 : ((tag) >> 2) + 1)
#define SNAPPY_IS_RARE(tag) (SNAPPY_KIND(tag) == 0 ? (tag) >> 2 >= 60 : SNAPPY_LENGTH(tag) < SNAPPY_LEAST_MATCH)
#define SNAPPY_LEAST_DISTANCE(tag) \
    (SNAPPY_IS_RARE(tag) ? SNAPPY_NO_DISTANCE : SNAPPY_KIND(tag) == 1 ? (tag) >> 5 << 8 : SNAPPY_KIND(tag) ? 0 : 16)
#define SNAPPY_NO_DISTANCE 0x7FFFF
#define SNAPPY_ROW(tag) \
    ((uint32_t)SNAPPY_STEP(tag) | (uint32_t)SNAPPY_LENGTH(tag) << 6 | (uint32_t)SNAPPY_LEAST_DISTANCE(tag) << 13)
#define SNAPPY_ROWS_4(tag) SNAPPY_ROW(tag), SNAPPY_ROW(tag + 1), SNAPPY_ROW(tag + 2), SNAPPY_ROW(tag + 3)
#define SNAPPY_ROWS_16(tag) \
    SNAPPY_ROWS_4(tag), SNAPPY_ROWS_4(tag + 4), SNAPPY_ROWS_4(tag + 8), SNAPPY_ROWS_4(tag + 12)
#define SNAPPY_ROWS_64(tag) \
    SNAPPY_ROWS_16(tag), SNAPPY_ROWS_16(tag + 16), SNAPPY_ROWS_16(tag + 32), SNAPPY_ROWS_16(tag + 48)

/* Decompress elements as long as they are plain: far from the ends of the block, with matches at 16 bytes' distance or
   more. Nearly all are. Whether the next element is a literal or a match cannot be predicted, and a mispredicted branch
   costs as much as all else, so both take the same steps. */
static void snappy_read_plain(snappy_block *block) {
    static const uint32_t rows[256] = {SNAPPY_ROWS_64(0), SNAPPY_ROWS_64(64), SNAPPY_ROWS_64(128), SNAPPY_ROWS_64(192)};
    static const uint32_t distance_masks[4] = {0, 0xFF, 0xFFFF, 0xFFFFFFFF};
    if (block->next_end - block->next < 68 || block->to_end - block->to < 64 || block->to - block->begin < 16)
        return;
    const uint8_t *next = block->next, *next_end = block->next_end - 68;
    uint8_t *to = block->to, *to_end = block->to_end - 64, *out = block->out, *least_from = block->begin + 16;
    if (to_end - block->begin > SNAPPY_NO_DISTANCE - 16)
        to_end = block->begin + SNAPPY_NO_DISTANCE - 16;
    lz_match *row = block->row;
    uint64_t going_on = 0;
    if (row > block->first)
        going_on = row[-1].distance | (uint64_t)(row[-1].at + row[-1].length) << 32;
    while ((next <= next_end) & (to <= to_end)) {
        uint32_t tag = *next, known = rows[tag], length = known >> 6 & 127, is_match = (tag & 3) != 0;
        uint64_t distance = (known >> 13) + (uint64_t)(little_uint32(next + 1) & distance_masks[tag & 3]);
        uint64_t place = distance | (uint64_t)(to - out) << 32;
        if ((distance - 16 > (uint64_t)(to - least_from)) | (place == going_on))
            break;
        uintptr_t literal = (uintptr_t)(next + 1), match = (uintptr_t)to - distance;
        const uint8_t *from = (const uint8_t *)(literal ^ ((literal ^ match) & -(uintptr_t)is_match));
        memcpy(to, from, 16);
        memcpy(to + 16, from + 16, 16);
        if (length > 32) {
            memcpy(to + 32, from + 32, 16);
            memcpy(to + 48, from + 48, 16);
        }
        row->at = (uint32_t)(to - out);
        row->length = length;
        row->distance = (uint32_t)distance;
        row += is_match;
        to += length;
        next += known & 63;
        going_on = distance | (uint64_t)(to - out) << 32;
    }
    block->next = next;
    block->to = to;
    block->row = row;
}

/* Decompress any one element; return 0 if it is malformed. */
static int snappy_read_element(snappy_block *block) {
    unsigned tag = *block->next++;
    size_t length, distance, left = (size_t)(block->next_end - block->next);
    size_t at = (size_t)(block->to - block->out), room = (size_t)(block->to_end - block->to), fields = tag & 3;
    if (fields == 0) {
        length = tag >> 2;
        if (length >= 60) {
            fields = length - 59;
            if (fields > left)
                return 0;
            length = 0;
            for (size_t index = 0; index < fields; index++)
                length |= (size_t)block->next[index] << 8 * index;
            block->next += fields;
            left -= fields;
        }
        length++;
        if (length > left || length > room)
            return 0;
        lz_copy_literals(block->to, block->next, length, block->next_end);
        block->to += length;
        block->next += length;
        return 1;
    }
    fields += fields == 3;
    if (fields > left)
        return 0;
    if (fields == 1) {
        length = (tag >> 2 & 7) + 4;
        distance = (size_t)(tag >> 5) << 8 | block->next[0];
    } else {
        length = (tag >> 2) + 1;
        distance = block->next[0] | (size_t)block->next[1] << 8;
        if (fields == 4)
            distance |= (size_t)block->next[2] << 16 | (size_t)block->next[3] << 24;
    }
    block->next += fields;
    if (distance == 0 || distance > (size_t)(block->to - block->begin) || length > room)
        return 0;
    lz_copy_match(block->out, at, distance, length);
    block->to += length;
    lz_match *row = block->row;
    if (row > block->first && row[-1].distance == distance && row[-1].at + row[-1].length == at) {
        row[-1].length += (uint32_t)length;
    } else if (length >= SNAPPY_LEAST_MATCH) {
        row->at = (uint32_t)at;
        row->length = (uint32_t)length;
        row->distance = (uint32_t)distance;
        block->row++;
    }
    return 1;
}

/* Decompress one block to `out` from `at` on, and note its matches; return the position after it. */
static ptrdiff_t snappy_read_block(const uint8_t *in, size_t size, uint8_t *out, size_t at, size_t capacity,
                                   lz_match *found, size_t *count) {
    size_t position = 0;
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
    uint8_t *begin = out + at, *end = begin + promised;
    lz_match *row = found + *count;
    snappy_block block = {in + position, in + size, out, begin, begin, end, row, row};
    for (;;) {
        snappy_read_plain(&block);
        if (block.next == block.next_end)
            break;
        if (!snappy_read_element(&block))
            return LZ_MALFORMED;
    }
    *count = (size_t)(block.row - found);
    return block.to == end ? end - out : LZ_MALFORMED;
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
    uint32_t as_long = 2 | (length - 1) << 2 | distance << 8;
    uint32_t bits = as_long ^ ((as_long ^ as_short) & -is_short);
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
