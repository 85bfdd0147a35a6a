/* Reading deflate (RFC 1951) in gzip members (RFC 1952), with the matches that it encodes. */

#ifndef GREGOR_DEFLATE_READING_H
#define GREGOR_DEFLATE_READING_H

#include "lz_matches.h"

#define GZIP_HEAD 10
#define GZIP_TAIL 8
#define DEFLATE_LONGEST_CODE 15
#define DEFLATE_LITERALS 288
#define DEFLATE_DISTANCES 32
#define DEFLATE_END_OF_BLOCK 256
#define DEFLATE_LEAST_MATCH 3
/* Codes of up to so many bits are found with one look into a table. */
#define DEFLATE_TABLE_BITS 10

static const uint8_t DEFLATE_LENGTHS_ORDER[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};

/* The least lengths and distances of their codes, and the bits that follow: those of a length are at most 5. */
static const uint16_t DEFLATE_LEAST_LENGTHS[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                                   31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
static const uint8_t DEFLATE_LENGTH_BITS[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
static const uint16_t DEFLATE_LEAST_DISTANCES[30] = {1,   2,   3,   4,   5,   7,    9,    13,   17,   25,
                                                     33,  49,  65,  97,  129, 193,  257,  385,  513,  769,
                                                     1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
static const uint8_t DEFLATE_DISTANCE_BITS[30] = {0, 0, 0, 0, 1, 1, 2, 2,  3,  3,  4,  4,  5,  5,  6,
                                                  6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13};
/* Most bits of a distance and its code. */
#define DEFLATE_DISTANCE_CODE_BITS 28

typedef struct {
    uint16_t table[1 << DEFLATE_TABLE_BITS]; /* symbol << 4 | bits of its code; 0: a longer code or none */
    uint16_t count[DEFLATE_LONGEST_CODE + 1];
    uint16_t symbols[DEFLATE_LITERALS];
} deflate_code;

typedef struct {
    const uint8_t *at, *end;
    uint64_t bits;
    unsigned count;
} deflate_input;

static inline void deflate_refill(deflate_input *in) {
    if (in->end - in->at >= 8) {
        uint64_t more = 0;
        for (int index = 0; index < 8; index++)
            more |= (uint64_t)in->at[index] << 8 * index;
        in->bits |= more << in->count;
        in->at += (63 - in->count) >> 3;
        in->count |= 56;
        return;
    }
    while (in->count <= 55 && in->at < in->end) {
        in->bits |= (uint64_t)*in->at++ << in->count;
        in->count += 8;
    }
}

static inline uint32_t deflate_bits(deflate_input *in, unsigned count) {
    uint32_t value = (uint32_t)(in->bits & ((1u << count) - 1));
    in->bits >>= count;
    in->count -= count;
    return value;
}

static inline uint32_t reversed_bits(uint32_t code, unsigned size) {
    uint32_t reversed = 0;
    for (; size > 0; size--, code >>= 1)
        reversed = reversed << 1 | (code & 1);
    return reversed;
}

/* Make the code whose symbols have `lengths`; return whether no two of its codes are one. */
static int deflate_make_code(deflate_code *code, const uint8_t *lengths, int symbol_count) {
    uint16_t first[DEFLATE_LONGEST_CODE + 2] = {0}, place[DEFLATE_LONGEST_CODE + 2] = {0};
    int left = 1;
    memset(code->count, 0, sizeof code->count);
    memset(code->table, 0, sizeof code->table);
    for (int symbol = 0; symbol < symbol_count; symbol++)
        code->count[lengths[symbol]]++;
    code->count[0] = 0;
    for (int bits = 1; bits <= DEFLATE_LONGEST_CODE; bits++) {
        left = (left << 1) - code->count[bits];
        if (left < 0)
            return 0;
        first[bits + 1] = (uint16_t)((first[bits] + code->count[bits]) << 1);
        place[bits + 1] = place[bits] + code->count[bits];
    }
    for (int symbol = 0; symbol < symbol_count; symbol++) {
        unsigned bits = lengths[symbol];
        if (bits == 0)
            continue;
        code->symbols[place[bits]++] = (uint16_t)symbol;
        unsigned value = first[bits]++;
        if (bits <= DEFLATE_TABLE_BITS)
            for (uint32_t at = reversed_bits(value, bits); at < 1 << DEFLATE_TABLE_BITS; at += 1u << bits)
                code->table[at] = (uint16_t)(symbol << 4 | bits);
    }
    return 1;
}

/* Return the next symbol; -1 if there is none. The input must have been refilled. */
static inline int deflate_symbol(const deflate_code *code, deflate_input *in) {
    unsigned entry = code->table[in->bits & ((1 << DEFLATE_TABLE_BITS) - 1)], bits = entry & 15;
    if (bits > 0) {
        if (bits > in->count)
            return LZ_MALFORMED;
        in->bits >>= bits;
        in->count -= bits;
        return (int)(entry >> 4);
    }
    int value = 0, first = 0, place = 0;
    for (bits = 1; bits <= DEFLATE_LONGEST_CODE && bits <= in->count; bits++) {
        value |= (int)(in->bits >> (bits - 1) & 1);
        int count = code->count[bits];
        if (value - first < count) {
            in->bits >>= bits;
            in->count -= bits;
            return code->symbols[place + (value - first)];
        }
        place += count;
        first = (first + count) << 1;
        value <<= 1;
    }
    return LZ_MALFORMED;
}

/* Read the lengths of a block's two codes. */
static int deflate_read_codes(deflate_input *in, deflate_code *literals, deflate_code *distances) {
    uint8_t lengths[DEFLATE_LITERALS + DEFLATE_DISTANCES] = {0};
    deflate_refill(in);
    if (in->count < 14)
        return 0;
    unsigned literal_count = deflate_bits(in, 5) + 257, distance_count = deflate_bits(in, 5) + 1;
    unsigned length_count = deflate_bits(in, 4) + 4, filled = 0;
    if (literal_count > 286 || distance_count > 30)
        return 0;
    for (unsigned index = 0; index < length_count; index++) {
        deflate_refill(in);
        if (in->count < 3)
            return 0;
        lengths[DEFLATE_LENGTHS_ORDER[index]] = (uint8_t)deflate_bits(in, 3);
    }
    if (!deflate_make_code(literals, lengths, 19))
        return 0;
    memset(lengths, 0, sizeof lengths);
    while (filled < literal_count + distance_count) {
        deflate_refill(in);
        int symbol = deflate_symbol(literals, in);
        if (symbol < 0)
            return 0;
        if (symbol < 16) {
            lengths[filled++] = (uint8_t)symbol;
            continue;
        }
        unsigned bits = symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
        if (in->count < bits || (symbol == 16 && filled == 0))
            return 0;
        unsigned repeats = deflate_bits(in, bits) + (symbol == 18 ? 11 : 3);
        uint8_t length = symbol == 16 ? lengths[filled - 1] : 0;
        if (repeats > literal_count + distance_count - filled)
            return 0;
        while (repeats-- > 0)
            lengths[filled++] = length;
    }
    return lengths[DEFLATE_END_OF_BLOCK] != 0 && deflate_make_code(literals, lengths, (int)literal_count) &&
           deflate_make_code(distances, lengths + literal_count, (int)distance_count);
}

static int deflate_fixed_codes(deflate_code *literals, deflate_code *distances) {
    uint8_t lengths[DEFLATE_LITERALS];
    for (int symbol = 0; symbol < DEFLATE_LITERALS; symbol++)
        lengths[symbol] = symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8;
    if (!deflate_make_code(literals, lengths, DEFLATE_LITERALS))
        return 0;
    memset(lengths, 5, DEFLATE_DISTANCES);
    return deflate_make_code(distances, lengths, DEFLATE_DISTANCES);
}

/* Read the symbols of a block to `out` from `at` on; return the position after them. */
static ptrdiff_t deflate_read_symbols(deflate_input *input, const deflate_code *literals, const deflate_code *distances,
                                      uint8_t *out, size_t at, size_t capacity, lz_match *found, size_t *count) {
    /* Copies, as the compiler cannot know that the bytes written are not those of `input`. */
    deflate_input here = *input, *in = &here;
    lz_match *row = found + *count;
    for (;;) {
        deflate_refill(in);
        int symbol = deflate_symbol(literals, in);
        if (symbol < 0)
            return LZ_MALFORMED;
        if (symbol < 256) {
            if (at >= capacity)
                return LZ_OUT_IS_FULL;
            out[at++] = (uint8_t)symbol;
            continue;
        }
        if (symbol == DEFLATE_END_OF_BLOCK)
            break;
        unsigned code = (unsigned)symbol - 257;
        if (code > 28 || DEFLATE_LENGTH_BITS[code] > in->count)
            return LZ_MALFORMED;
        size_t length = DEFLATE_LEAST_LENGTHS[code] + deflate_bits(in, DEFLATE_LENGTH_BITS[code]);
        if (in->count < DEFLATE_DISTANCE_CODE_BITS)
            deflate_refill(in);
        symbol = deflate_symbol(distances, in);
        if (symbol < 0 || symbol > 29 || DEFLATE_DISTANCE_BITS[symbol] > in->count)
            return LZ_MALFORMED;
        size_t distance = DEFLATE_LEAST_DISTANCES[symbol] + deflate_bits(in, DEFLATE_DISTANCE_BITS[symbol]);
        if (distance > at)
            return LZ_MALFORMED;
        if (length > capacity - at)
            return LZ_OUT_IS_FULL;
        lz_copy_match(out, at, distance, length);
        if (row > found && (row[-1].distance == distance) & (row[-1].at + row[-1].length == at)) {
            row[-1].length += (uint32_t)length;
        } else {
            row->at = (uint32_t)at;
            row->length = (uint32_t)length;
            row->distance = (uint32_t)distance;
            row++;
        }
        at += length;
    }
    *input = here;
    *count = (size_t)(row - found);
    return (ptrdiff_t)at;
}

/* Decompress a gzip member; return the size of its content. `found` has room for a third of `capacity`. The CRC is not
   checked but stored at `crc`. Members with names or comments and further members count as malformed. */
static ptrdiff_t gzip_read(const uint8_t *data, size_t size, uint8_t *out, size_t capacity, lz_match *found,
                           size_t *count, uint32_t *crc) {
    deflate_code literals, distances;
    if (size < GZIP_HEAD + GZIP_TAIL || data[0] != 0x1F || data[1] != 0x8B || data[2] != 8 || data[3] != 0)
        return LZ_MALFORMED;
    deflate_input in = {data + GZIP_HEAD, data + size, 0, 0};
    size_t at = 0;
    for (unsigned is_last = 0; !is_last;) {
        deflate_refill(&in);
        if (in.count < 3)
            return LZ_MALFORMED;
        is_last = deflate_bits(&in, 1);
        unsigned type = deflate_bits(&in, 2);
        if (type == 3)
            return LZ_MALFORMED;
        if (type == 0) {
            deflate_bits(&in, in.count & 7);
            in.at -= in.count >> 3;
            in.bits = in.count = 0;
            if (in.end - in.at < 4)
                return LZ_MALFORMED;
            size_t stored = in.at[0] | (size_t)in.at[1] << 8;
            if ((stored ^ 0xFFFF) != (in.at[2] | (size_t)in.at[3] << 8) || stored > (size_t)(in.end - in.at) - 4)
                return LZ_MALFORMED;
            if (stored > capacity - at)
                return LZ_OUT_IS_FULL;
            memcpy(out + at, in.at + 4, stored);
            at += stored;
            in.at += 4 + stored;
            continue;
        }
        if (!(type == 1 ? deflate_fixed_codes(&literals, &distances) : deflate_read_codes(&in, &literals, &distances)))
            return LZ_MALFORMED;
        ptrdiff_t end = deflate_read_symbols(&in, &literals, &distances, out, at, capacity, found, count);
        if (end < 0)
            return end;
        at = (size_t)end;
    }
    const uint8_t *tail = in.at - (in.count >> 3);
    if (in.end - tail != GZIP_TAIL)
        return LZ_MALFORMED;
    *crc = tail[0] | (uint32_t)tail[1] << 8 | (uint32_t)tail[2] << 16 | (uint32_t)tail[3] << 24;
    uint32_t promised = tail[4] | (uint32_t)tail[5] << 8 | (uint32_t)tail[6] << 16 | (uint32_t)tail[7] << 24;
    return promised == at ? (ptrdiff_t)at : LZ_MALFORMED;
}

#endif
