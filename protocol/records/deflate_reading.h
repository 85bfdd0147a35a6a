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

/* What a symbol means: its value from bit 16 on (a byte, the least length, the least distance or the symbol itself),
   flags, and the number of the bits that follow its code. An entry of a code adds the bits of the code to these, so that one
   shift drops all of them, and has them once more from bit 8 on. */
#define DEFLATE_ALL_BITS(entry) ((entry) & 63)
#define DEFLATE_CODE_BITS(entry) ((entry) >> 8 & 15)
#define DEFLATE_IS_LITERAL 0x1000
#define DEFLATE_IS_END 0x2000
#define DEFLATE_IS_INVALID 0x4000
#define DEFLATE_VALUE(entry) ((entry) >> 16)

typedef uint32_t deflate_meaning(unsigned symbol);

static inline uint32_t deflate_symbol_meaning(unsigned symbol) {
    return symbol << 16;
}

static inline uint32_t deflate_literal_meaning(unsigned symbol) {
    if (symbol < DEFLATE_END_OF_BLOCK)
        return symbol << 16 | DEFLATE_IS_LITERAL;
    if (symbol == DEFLATE_END_OF_BLOCK)
        return DEFLATE_IS_END;
    if (symbol > 285)
        return DEFLATE_IS_INVALID;
    return (uint32_t)DEFLATE_LEAST_LENGTHS[symbol - 257] << 16 | DEFLATE_LENGTH_BITS[symbol - 257];
}

static inline uint32_t deflate_distance_meaning(unsigned symbol) {
    if (symbol > 29)
        return DEFLATE_IS_INVALID;
    return (uint32_t)DEFLATE_LEAST_DISTANCES[symbol] << 16 | DEFLATE_DISTANCE_BITS[symbol];
}

typedef struct {
    uint32_t table[1 << DEFLATE_TABLE_BITS]; /* entries by the next bits of the input; 0: a longer code or none */
    uint32_t entries[DEFLATE_LITERALS]; /* in the order of their codes */
    /* Of the codes of each length: their number, the first one, and its place in `entries`. */
    uint16_t count[DEFLATE_LONGEST_CODE + 1], first[DEFLATE_LONGEST_CODE + 1], place[DEFLATE_LONGEST_CODE + 1];
} deflate_code;

/* The lengths of codes. A writer of similar content takes them for costs. */
typedef struct {
    uint8_t literals[DEFLATE_LITERALS], distances[DEFLATE_DISTANCES];
} deflate_lengths;

typedef struct {
    const uint8_t *at, *end;
    uint64_t bits;
    unsigned count;
} deflate_input;

/* Refill the bits, to 56 at least, of an input of which 8 bytes are left. */
static inline void deflate_refill_far(deflate_input *in) {
    uint64_t more = 0;
    for (int index = 0; index < 8; index++)
        more |= (uint64_t)in->at[index] << 8 * index;
    in->bits |= more << in->count;
    in->at += (63 - in->count) >> 3;
    in->count |= 56;
}

static inline void deflate_refill(deflate_input *in) {
    if (in->end - in->at >= 8) {
        deflate_refill_far(in);
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

/* Return the last `size` bits of a code, at most 15, in reverse. */
static inline uint32_t reversed_bits(uint32_t code, unsigned size) {
    code = (code & 0x5555) << 1 | (code >> 1 & 0x5555);
    code = (code & 0x3333) << 2 | (code >> 2 & 0x3333);
    code = (code & 0x0F0F) << 4 | (code >> 4 & 0x0F0F);
    return ((code & 0xFF) << 8 | code >> 8) >> (16 - size);
}

/* Make the code whose symbols have `lengths`; return whether no two of its codes are one. */
static inline int deflate_make_code(deflate_code *code, const uint8_t *lengths, int symbol_count,
                                    deflate_meaning *meaning) {
    uint16_t places[DEFLATE_LONGEST_CODE + 1];
    int left = 1;
    memset(code->count, 0, sizeof code->count);
    for (int symbol = 0; symbol < symbol_count; symbol++)
        code->count[lengths[symbol]]++;
    code->count[0] = code->first[0] = code->place[0] = 0;
    for (int bits = 1; bits <= DEFLATE_LONGEST_CODE; bits++) {
        left = (left << 1) - code->count[bits];
        if (left < 0)
            return 0;
        code->first[bits] = (uint16_t)((code->first[bits - 1] + code->count[bits - 1]) << 1);
        code->place[bits] = code->place[bits - 1] + code->count[bits - 1];
    }
    memcpy(places, code->place, sizeof places);
    for (int symbol = 0; symbol < symbol_count; symbol++)
        if (lengths[symbol] > 0)
            code->entries[places[lengths[symbol]]++] = meaning((unsigned)symbol) + lengths[symbol] * 0x101u;
    /* A table for codes of so many bits is the one for fewer bits, twice, with the codes that have all of the bits. */
    code->table[0] = 0;
    for (unsigned bits = 1; bits <= DEFLATE_TABLE_BITS; bits++) {
        uint32_t half = 1u << (bits - 1);
        memcpy(code->table + half, code->table, half * sizeof *code->table);
        for (unsigned index = 0; index < code->count[bits]; index++)
            code->table[reversed_bits(code->first[bits] + index, bits)] = code->entries[code->place[bits] + index];
    }
    return 1;
}

/* Return the entry of a code that is longer than those in the table; DEFLATE_IS_INVALID if there is none. */
static uint32_t deflate_long_entry(const deflate_code *code, uint64_t input) {
    uint32_t value = reversed_bits((uint32_t)input & ((1 << DEFLATE_LONGEST_CODE) - 1), DEFLATE_LONGEST_CODE);
    for (unsigned bits = DEFLATE_TABLE_BITS + 1; bits <= DEFLATE_LONGEST_CODE; bits++) {
        uint32_t after_first = (value >> (DEFLATE_LONGEST_CODE - bits)) - code->first[bits];
        if (after_first < code->count[bits])
            return code->entries[code->place[bits] + after_first];
    }
    return DEFLATE_IS_INVALID;
}

/* Return the entry of the next symbol, which is not taken yet. The input must have been refilled. */
static inline uint32_t deflate_entry(const deflate_code *code, const deflate_input *in) {
    uint32_t entry = code->table[in->bits & ((1 << DEFLATE_TABLE_BITS) - 1)];
    return entry ? entry : deflate_long_entry(code, in->bits);
}

/* Drop the code of an entry and the bits that follow it. The bits must be there. */
static inline void deflate_drop(deflate_input *in, uint32_t entry) {
    in->bits >>= DEFLATE_ALL_BITS(entry);
    in->count -= DEFLATE_ALL_BITS(entry);
}

/* Drop them as `deflate_drop` does; return the value of the entry with the bits that follow its code. */
static inline uint32_t deflate_take(deflate_input *in, uint32_t entry) {
    uint64_t taken = in->bits & ((1ull << DEFLATE_ALL_BITS(entry)) - 1);
    deflate_drop(in, entry);
    return DEFLATE_VALUE(entry) + (uint32_t)(taken >> DEFLATE_CODE_BITS(entry));
}

/* Read the lengths of a block's two codes. */
static int deflate_read_lengths(deflate_input *in, deflate_code *code, deflate_lengths *found) {
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
    if (!deflate_make_code(code, lengths, 19, deflate_symbol_meaning))
        return 0;
    memset(lengths, 0, sizeof lengths);
    while (filled < literal_count + distance_count) {
        deflate_refill(in);
        uint32_t entry = deflate_entry(code, in);
        if (entry & DEFLATE_IS_INVALID || DEFLATE_CODE_BITS(entry) > in->count)
            return 0;
        uint32_t symbol = deflate_take(in, entry);
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
    memset(found, 0, sizeof *found);
    memcpy(found->literals, lengths, literal_count);
    memcpy(found->distances, lengths + literal_count, distance_count);
    return lengths[DEFLATE_END_OF_BLOCK] != 0;
}

static void deflate_fixed_lengths(deflate_lengths *lengths) {
    for (int symbol = 0; symbol < DEFLATE_LITERALS; symbol++)
        lengths->literals[symbol] = symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8;
    memset(lengths->distances, 5, DEFLATE_DISTANCES);
}

/* Bytes that must be left of the input for a symbol to be read without further checks, and the most that it gives. */
#define DEFLATE_FAR_INPUT 16
#define DEFLATE_MOST_OUTPUT 260

/* Note a match, or make the last one longer that it continues; return the end of the rows. */
static inline lz_match *deflate_note(const lz_match *found, lz_match *row, size_t at, size_t length, size_t distance) {
    if (row > found && (row[-1].distance == distance) & (row[-1].at + row[-1].length == at)) {
        row[-1].length += (uint32_t)length;
        return row;
    }
    row->at = (uint32_t)at;
    row->length = (uint32_t)length;
    row->distance = (uint32_t)distance;
    return row + 1;
}

/* Read literals and matches as `deflate_read_symbols` does, far from the ends of input and output, where no symbol
   needs a check of its own; return the position after them. What comes next is for `deflate_read_symbols`. */
static inline ptrdiff_t deflate_read_plain(deflate_input *input, const deflate_code *literals,
                                           const deflate_code *distances, uint8_t *out, size_t at, size_t capacity,
                                           const lz_match *found, lz_match **rows) {
    deflate_input here = *input, *in = &here;
    lz_match *row = *rows;
    while (in->end - in->at >= DEFLATE_FAR_INPUT && capacity - at >= DEFLATE_MOST_OUTPUT) {
        deflate_refill_far(in);
        uint32_t entry = deflate_entry(literals, in);
        if (entry & DEFLATE_IS_LITERAL) {
            deflate_drop(in, entry);
            out[at++] = (uint8_t)DEFLATE_VALUE(entry);
            entry = deflate_entry(literals, in);
            if (entry & DEFLATE_IS_LITERAL) {
                deflate_drop(in, entry);
                out[at++] = (uint8_t)DEFLATE_VALUE(entry);
                continue;
            }
        }
        if (entry & (DEFLATE_IS_END | DEFLATE_IS_INVALID))
            break;
        size_t length = deflate_take(in, entry);
        if (in->count < DEFLATE_DISTANCE_CODE_BITS)
            deflate_refill_far(in);
        entry = deflate_entry(distances, in);
        size_t distance = deflate_take(in, entry);
        if (entry & DEFLATE_IS_INVALID || distance > at)
            return LZ_MALFORMED;
        lz_copy_match(out, at, distance, length);
        row = deflate_note(found, row, at, length, distance);
        at += length;
    }
    *input = here;
    *rows = row;
    return (ptrdiff_t)at;
}

/* Read the symbols of a block to `out` from `at` on; return the position after them. */
static ptrdiff_t deflate_read_symbols(deflate_input *input, const deflate_code *literals, const deflate_code *distances,
                                      uint8_t *out, size_t at, size_t capacity, lz_match *found, size_t *count) {
    /* Copies, as the compiler cannot know that the bytes written are not those of `input`. */
    deflate_input here = *input, *in = &here;
    lz_match *row = found + *count;
    for (;;) {
        ptrdiff_t end = deflate_read_plain(in, literals, distances, out, at, capacity, found, &row);
        if (end < 0)
            return end;
        at = (size_t)end;
        deflate_refill(in);
        uint32_t entry = deflate_entry(literals, in);
        if (DEFLATE_ALL_BITS(entry) > in->count)
            return LZ_MALFORMED;
        if (entry & DEFLATE_IS_LITERAL) {
            if (at >= capacity)
                return LZ_OUT_IS_FULL;
            deflate_drop(in, entry);
            out[at++] = (uint8_t)DEFLATE_VALUE(entry);
            continue;
        }
        if (entry & DEFLATE_IS_INVALID)
            return LZ_MALFORMED;
        size_t length = deflate_take(in, entry);
        if (entry & DEFLATE_IS_END)
            break;
        if (in->count < DEFLATE_DISTANCE_CODE_BITS)
            deflate_refill(in);
        entry = deflate_entry(distances, in);
        if (entry & DEFLATE_IS_INVALID || DEFLATE_ALL_BITS(entry) > in->count)
            return LZ_MALFORMED;
        size_t distance = deflate_take(in, entry);
        if (distance > at)
            return LZ_MALFORMED;
        if (length > capacity - at)
            return LZ_OUT_IS_FULL;
        lz_copy_match(out, at, distance, length);
        row = deflate_note(found, row, at, length, distance);
        at += length;
    }
    *input = here;
    *count = (size_t)(row - found);
    return (ptrdiff_t)at;
}

/* Decompress a gzip member; return the size of its content. `found` has room for a third of `capacity`. The CRC is not
   checked but stored at `crc`, the lengths of the last block's codes at `lengths`. Members with names or comments and further members count as malformed. */
static ptrdiff_t gzip_read(const uint8_t *data, size_t size, uint8_t *out, size_t capacity, lz_match *found,
                           size_t *count, uint32_t *crc, deflate_lengths *lengths) {
    deflate_code literals, distances;
    if (size < GZIP_HEAD + GZIP_TAIL || data[0] != 0x1F || data[1] != 0x8B || data[2] != 8 || data[3] != 0)
        return LZ_MALFORMED;
    deflate_input in = {data + GZIP_HEAD, data + size, 0, 0};
    deflate_fixed_lengths(lengths);
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
        if (type == 1)
            deflate_fixed_lengths(lengths);
        else if (!deflate_read_lengths(&in, &literals, lengths))
            return LZ_MALFORMED;
        if (!deflate_make_code(&literals, lengths->literals, DEFLATE_LITERALS, deflate_literal_meaning) ||
            !deflate_make_code(&distances, lengths->distances, DEFLATE_DISTANCES, deflate_distance_meaning))
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
