/* Writing deflate (RFC 1951) in a gzip member (RFC 1952), from matches that are known. */

#ifndef GREGOR_DEFLATE_WRITING_H
#define GREGOR_DEFLATE_WRITING_H

#include "deflate_reading.h"

#define DEFLATE_MOST_DISTANCE 32768
#define DEFLATE_LONGEST_MATCH 258
/* A match of at most so many bytes may take more bits than these. */
#define DEFLATE_DOUBTED_MATCH 6
#define DEFLATE_BLOCK_BYTES 131072
/* The largest content of a stored block. */
#define DEFLATE_STORED_BYTES 65535

typedef struct {
    uint8_t *to;
    uint64_t bits;
    unsigned count;
} deflate_output;

typedef struct {
    uint32_t frequency[DEFLATE_LITERALS];
    uint16_t codes[DEFLATE_LITERALS];
    uint8_t lengths[DEFLATE_LITERALS];
} deflate_writing_code;

/* Append at most 48 bits. */
static inline void deflate_put(deflate_output *out, uint64_t bits, unsigned count) {
    out->bits |= bits << out->count;
    out->count += count;
    for (int index = 0; index < 8; index++)
        out->to[index] = (uint8_t)(out->bits >> 8 * index);
    out->to += out->count >> 3;
    out->bits >>= out->count & ~7u;
    out->count &= 7;
}

static inline void deflate_align(deflate_output *out) {
    if (out->count > 0)
        deflate_put(out, 0, 8 - out->count);
}

static inline unsigned highest_bit(uint32_t value) {
    return 31 - (unsigned)__builtin_clz(value);
}

/* Return the code of a length, after 257, and the number of the bits that follow it. No branch depends on the length,
   since it cannot be predicted. */
static inline unsigned deflate_length_code(uint32_t length, unsigned *extra) {
    uint32_t rest = length - DEFLATE_LEAST_MATCH;
    unsigned bits = highest_bit(rest | 4) - 2, is_longest = length == DEFLATE_LONGEST_MATCH;
    *extra = is_longest ? 0 : bits;
    return is_longest ? 28 : 4 * bits + (rest >> bits);
}

static inline unsigned deflate_distance_code(uint32_t distance, unsigned *extra) {
    uint32_t rest = distance - 1;
    unsigned bits = highest_bit(rest | 2) - 1;
    *extra = bits;
    return 2 * bits + (rest >> bits);
}

/* Replace `count` ascending weights by the lengths of a minimum-redundancy code, the longest first (Moffat and
   Katajainen, "In-place calculation of minimum-redundancy codes"). */
static void minimum_redundancy(int32_t *weights, int count) {
    int root = 0, leaf = 2, next, available = 1, used = 0, depth = 0;
    weights[0] += weights[1];
    for (next = 1; next < count - 1; next++) {
        if (leaf >= count || weights[root] < weights[leaf]) {
            weights[next] = weights[root];
            weights[root++] = next;
        } else {
            weights[next] = weights[leaf++];
        }
        if (leaf >= count || (root < next && weights[root] < weights[leaf])) {
            weights[next] += weights[root];
            weights[root++] = next;
        } else {
            weights[next] += weights[leaf++];
        }
    }
    weights[count - 2] = 0;
    for (next = count - 3; next >= 0; next--)
        weights[next] = weights[weights[next]] + 1;
    root = count - 2;
    next = count - 1;
    while (available > 0) {
        for (; root >= 0 && weights[root] == depth; root--)
            used++;
        for (; available > used; available--)
            weights[next--] = depth;
        available = 2 * used;
        depth++;
        used = 0;
    }
}

/* Make the code for the frequencies of `symbol_count` symbols, of at most `longest` bits; it has at least two symbols,
   since old readers refuse others. */
static void deflate_design(deflate_writing_code *code, int symbol_count, unsigned longest) {
    uint16_t order[DEFLATE_LITERALS], sorted[DEFLATE_LITERALS], next_code[DEFLATE_LONGEST_CODE + 2] = {0};
    int32_t weights[DEFLATE_LITERALS];
    uint32_t numbers[33] = {0};
    int count = 0;
    for (int symbol = 0; symbol < symbol_count; symbol++)
        if (code->frequency[symbol] > 0)
            order[count++] = (uint16_t)symbol;
    for (uint16_t symbol = 0; count < 2; symbol++)
        if (code->frequency[symbol] == 0) {
            code->frequency[symbol] = 1;
            order[count++] = symbol;
        }
    /* A radix sort by the frequencies, of which larger ones count as 65,535. */
    for (unsigned shift = 0; shift <= 8; shift += 8) {
        uint32_t places[257] = {0};
        for (int index = 0; index < count; index++) {
            uint32_t weight = code->frequency[order[index]];
            places[((weight < 65535 ? weight : 65535) >> shift & 255) + 1]++;
        }
        for (int value = 0; value < 256; value++)
            places[value + 1] += places[value];
        for (int index = 0; index < count; index++) {
            uint32_t weight = code->frequency[order[index]];
            sorted[places[(weight < 65535 ? weight : 65535) >> shift & 255]++] = order[index];
        }
        memcpy(order, sorted, (size_t)count * sizeof *order);
    }
    for (int index = 0; index < count; index++) {
        uint32_t weight = code->frequency[order[index]];
        weights[index] = (int32_t)(weight < 65535 ? weight : 65535);
    }
    minimum_redundancy(weights, count);
    for (int index = 0; index < count; index++)
        numbers[weights[index] < (int)longest ? weights[index] : (int)longest]++;
    uint32_t total = 0;
    for (unsigned bits = 1; bits <= longest; bits++)
        total += numbers[bits] << (longest - bits);
    for (; total > 1u << longest; total--) {
        numbers[longest]--;
        for (unsigned bits = longest - 1; bits > 0; bits--)
            if (numbers[bits] > 0) {
                numbers[bits]--;
                numbers[bits + 1] += 2;
                break;
            }
    }
    memset(code->lengths, 0, sizeof code->lengths);
    for (unsigned bits = 1, index = (unsigned)count; bits <= longest; bits++) {
        next_code[bits + 1] = (uint16_t)((next_code[bits] + numbers[bits]) << 1);
        for (uint32_t left = numbers[bits]; left > 0; left--)
            code->lengths[order[--index]] = (uint8_t)bits;
    }
    for (int symbol = 0; symbol < symbol_count; symbol++)
        if (code->lengths[symbol] > 0)
            code->codes[symbol] =
                (uint16_t)reversed_bits(next_code[code->lengths[symbol]]++, code->lengths[symbol]);
}

static inline uint32_t deflate_first_length(uint32_t length) {
    /* What remains of a longer match is a match too. */
    if (length <= DEFLATE_LONGEST_MATCH)
        return length;
    return length - DEFLATE_LONGEST_MATCH < DEFLATE_LEAST_MATCH ? length - DEFLATE_LEAST_MATCH : DEFLATE_LONGEST_MATCH;
}

static void deflate_count(const lz_moved *moved, size_t next, size_t next_end, uint32_t at, uint32_t end,
                          deflate_writing_code *literals, deflate_writing_code *distances) {
    unsigned extra;
    memset(literals->frequency, 0, sizeof literals->frequency);
    memset(distances->frequency, 0, sizeof distances->frequency);
    for (; next < next_end; next++) {
        const lz_match *match = moved->rows + next;
        while (at < match->at)
            literals->frequency[moved->bytes[at++]]++;
        at += match->length;
        unsigned distance = deflate_distance_code(match->distance, &extra);
        for (uint32_t left = match->length; left > 0;) {
            uint32_t length = deflate_first_length(left);
            literals->frequency[257 + deflate_length_code(length, &extra)]++;
            distances->frequency[distance]++;
            left -= length;
        }
    }
    while (at < end)
        literals->frequency[moved->bytes[at++]]++;
    literals->frequency[DEFLATE_END_OF_BLOCK] = 1;
}

static inline unsigned deflate_literal_bits(const deflate_writing_code *literals, uint8_t byte) {
    return literals->lengths[byte] > 0 ? literals->lengths[byte] : DEFLATE_LONGEST_CODE;
}

/* Remove the short matches from `next` on that take more bits than their bytes; return the new end of the matches. */
static size_t deflate_drop(lz_moved *moved, size_t next, size_t next_end, deflate_writing_code *literals,
                           deflate_writing_code *distances) {
    size_t kept = next;
    for (; next < next_end; next++) {
        const lz_match *match = moved->rows + next;
        if (match->length <= DEFLATE_DOUBTED_MATCH) {
            unsigned extra, distance_extra, distance = deflate_distance_code(match->distance, &distance_extra);
            unsigned symbol = 257 + deflate_length_code(match->length, &extra), as_literals = 0;
            unsigned bits = literals->lengths[symbol] + extra + distances->lengths[distance] + distance_extra;
            for (uint32_t at = match->at; at < match->at + match->length; at++)
                as_literals += deflate_literal_bits(literals, moved->bytes[at]);
            if (as_literals <= bits) {
                literals->frequency[symbol]--;
                distances->frequency[distance]--;
                for (uint32_t at = match->at; at < match->at + match->length; at++)
                    literals->frequency[moved->bytes[at]]++;
                continue;
            }
        }
        moved->rows[kept++] = *match;
    }
    return kept;
}

/* Write the lengths of both codes; `out` 0 only counts the bits. */
static uint32_t deflate_put_codes(deflate_output *out, const deflate_writing_code *literals,
                                  const deflate_writing_code *distances) {
    uint8_t lengths[DEFLATE_LITERALS + DEFLATE_DISTANCES], symbols[DEFLATE_LITERALS + DEFLATE_DISTANCES];
    uint8_t repeats[DEFLATE_LITERALS + DEFLATE_DISTANCES];
    deflate_writing_code code;
    int literal_count = 286, distance_count = 30, symbol_count = 0, length_count = 19;
    while (literal_count > 257 && literals->lengths[literal_count - 1] == 0)
        literal_count--;
    while (distance_count > 1 && distances->lengths[distance_count - 1] == 0)
        distance_count--;
    memcpy(lengths, literals->lengths, (size_t)literal_count);
    memcpy(lengths + literal_count, distances->lengths, (size_t)distance_count);
    memset(code.frequency, 0, sizeof code.frequency);
    for (int at = 0, total = literal_count + distance_count; at < total;) {
        int run = 1;
        while (at + run < total && lengths[at + run] == lengths[at])
            run++;
        uint8_t symbol = lengths[at], repeat = 0;
        if (symbol == 0 && run >= 3) {
            run = run < 138 ? run : 138;
            symbol = run < 11 ? 17 : 18;
            repeat = (uint8_t)(run - (run < 11 ? 3 : 11));
        } else if (at > 0 && symbol == lengths[at - 1] && run >= 3) {
            run = run < 6 ? run : 6;
            symbol = 16;
            repeat = (uint8_t)(run - 3);
        } else {
            run = 1;
        }
        symbols[symbol_count] = symbol;
        repeats[symbol_count++] = repeat;
        code.frequency[symbol]++;
        at += run;
    }
    deflate_design(&code, 19, 7);
    while (length_count > 4 && code.lengths[DEFLATE_LENGTHS_ORDER[length_count - 1]] == 0)
        length_count--;
    uint32_t bits = 14 + 3 * (uint32_t)length_count;
    if (out) {
        deflate_put(out, (uint64_t)(literal_count - 257), 5);
        deflate_put(out, (uint64_t)(distance_count - 1), 5);
        deflate_put(out, (uint64_t)(length_count - 4), 4);
        for (int index = 0; index < length_count; index++)
            deflate_put(out, code.lengths[DEFLATE_LENGTHS_ORDER[index]], 3);
    }
    for (int index = 0; index < symbol_count; index++) {
        unsigned symbol = symbols[index], extra = symbol < 16 ? 0 : symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
        bits += code.lengths[symbol] + extra;
        if (out) {
            deflate_put(out, code.codes[symbol], code.lengths[symbol]);
            deflate_put(out, repeats[index], extra);
        }
    }
    return bits;
}

static uint64_t deflate_size_in_bits(const deflate_writing_code *literals, const deflate_writing_code *distances) {
    uint64_t bits = 0;
    for (unsigned symbol = 0; symbol < 286; symbol++) {
        unsigned code = symbol - 257, extra = symbol < 265 || code >= 28 ? 0 : (code >> 2) - 1;
        bits += (uint64_t)literals->frequency[symbol] * (literals->lengths[symbol] + extra);
    }
    for (unsigned symbol = 0; symbol < 30; symbol++) {
        unsigned extra = symbol < 4 ? 0 : (symbol >> 1) - 1;
        bits += (uint64_t)distances->frequency[symbol] * (distances->lengths[symbol] + extra);
    }
    return bits;
}

static void deflate_put_symbols(deflate_output *output, const lz_moved *moved, size_t next, size_t next_end,
                                uint32_t at, uint32_t end, const deflate_writing_code *literals,
                                const deflate_writing_code *distances) {
    /* A copy, as the compiler cannot know that the bytes written are not those of `output`. */
    deflate_output here = *output, *out = &here;
    for (;; next++) {
        const lz_match *match = moved->rows + next;
        uint32_t literals_end = next < next_end ? match->at : end;
        for (; at + 3 <= literals_end; at += 3) {
            unsigned a = moved->bytes[at], b = moved->bytes[at + 1], c = moved->bytes[at + 2];
            unsigned a_bits = literals->lengths[a], ab_bits = a_bits + literals->lengths[b];
            deflate_put(out, (uint64_t)literals->codes[a] | (uint64_t)literals->codes[b] << a_bits |
                             (uint64_t)literals->codes[c] << ab_bits, ab_bits + literals->lengths[c]);
        }
        for (; at < literals_end; at++)
            deflate_put(out, literals->codes[moved->bytes[at]], literals->lengths[moved->bytes[at]]);
        if (next >= next_end)
            break;
        unsigned distance_extra, distance = deflate_distance_code(match->distance, &distance_extra);
        uint64_t distance_bits = distances->codes[distance];
        unsigned distance_count = distances->lengths[distance];
        distance_bits |= (uint64_t)((match->distance - 1) & ((1u << distance_extra) - 1)) << distance_count;
        distance_count += distance_extra;
        for (uint32_t left = match->length; left > 0;) {
            uint32_t length = deflate_first_length(left);
            unsigned extra, symbol = 257 + deflate_length_code(length, &extra), count = literals->lengths[symbol];
            uint64_t bits = literals->codes[symbol];
            bits |= (uint64_t)((length - DEFLATE_LEAST_MATCH) & ((1u << extra) - 1)) << count;
            count += extra;
            deflate_put(out, bits | distance_bits << count, count + distance_count);
            left -= length;
        }
        at += match->length;
    }
    deflate_put(out, literals->codes[DEFLATE_END_OF_BLOCK], literals->lengths[DEFLATE_END_OF_BLOCK]);
    *output = here;
}

static void deflate_put_stored(deflate_output *out, const uint8_t *bytes, uint32_t size, unsigned is_last) {
    for (;;) {
        uint32_t piece = size < DEFLATE_STORED_BYTES ? size : DEFLATE_STORED_BYTES;
        deflate_put(out, is_last && piece == size, 3);
        deflate_align(out);
        deflate_put(out, piece | (uint64_t)(piece ^ 0xFFFF) << 16, 32);
        memcpy(out->to, bytes, piece);
        out->to += piece;
        bytes += piece;
        size -= piece;
        if (size == 0)
            return;
    }
}

static inline size_t gzip_bound(size_t size) {
    return size + (size / DEFLATE_STORED_BYTES + size / DEFLATE_BLOCK_BYTES + 2) * 8 + GZIP_HEAD + GZIP_TAIL + LZ_SLACK;
}

/* Write a member with gzip_bound(moved->size) bytes of room; return its size. `crc` is that of the content. */
static ptrdiff_t gzip_write(lz_moved *moved, uint8_t *out, uint32_t crc) {
    static const uint8_t head[GZIP_HEAD] = {0x1F, 0x8B, 8};
    deflate_writing_code literals, distances;
    deflate_output to = {out + GZIP_HEAD, 0, 0};
    memcpy(out, head, GZIP_HEAD);
    uint32_t at = 0;
    size_t next = 0;
    do {
        size_t next_end = next;
        while (next_end < moved->count && moved->rows[next_end].at - at < DEFLATE_BLOCK_BYTES)
            next_end++;
        uint32_t end = moved->size;
        if (next_end < moved->count)
            end = moved->rows[next_end].at;
        unsigned is_last = end == moved->size;
        deflate_count(moved, next, next_end, at, end, &literals, &distances);
        deflate_design(&literals, 286, DEFLATE_LONGEST_CODE);
        deflate_design(&distances, 30, DEFLATE_LONGEST_CODE);
        size_t kept_end = deflate_drop(moved, next, next_end, &literals, &distances);
        if (kept_end < next_end) {
            deflate_design(&literals, 286, DEFLATE_LONGEST_CODE);
            deflate_design(&distances, 30, DEFLATE_LONGEST_CODE);
        }
        uint64_t bits = deflate_size_in_bits(&literals, &distances) + deflate_put_codes(0, &literals, &distances);
        if (bits / 8 < end - at) {
            deflate_put(&to, is_last | 2 << 1, 3);
            deflate_put_codes(&to, &literals, &distances);
            deflate_put_symbols(&to, moved, next, kept_end, at, end, &literals, &distances);
        } else {
            deflate_put_stored(&to, moved->bytes + at, end - at, is_last);
        }
        next = next_end;
        at = end;
    } while (at < moved->size);
    deflate_align(&to);
    for (int index = 0; index < 4; index++) {
        to.to[index] = (uint8_t)(crc >> 8 * index);
        to.to[4 + index] = (uint8_t)(moved->size >> 8 * index);
    }
    return to.to + GZIP_TAIL - out;
}

#endif
