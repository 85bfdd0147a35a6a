/* Writing deflate (RFC 1951) in a gzip member (RFC 1952), from matches that are known. */

#ifndef GREGOR_DEFLATE_WRITING_H
#define GREGOR_DEFLATE_WRITING_H

#include "deflate_design.h"

#define DEFLATE_MOST_DISTANCE 32768
#define DEFLATE_LONGEST_MATCH 258
/* A match of at most so many bytes may take more bits than these. */
#define DEFLATE_DOUBTED_MATCH 4
/* The cost in bits of a symbol that the code taken for costs does not have. */
#define DEFLATE_UNKNOWN_COST 12
/* Tokens after which a block ends, and room behind them for those that are written at once. */
#define DEFLATE_BLOCK_TOKENS 65536
#define DEFLATE_TOKEN_SLACK 32
/* Most bytes of a block before its symbols: those of the codes' lengths. */
#define DEFLATE_BLOCK_HEAD 640
/* The largest content of a stored block. */
#define DEFLATE_STORED_BYTES 65535

typedef struct {
    uint8_t *to;
    uint64_t bits;
    unsigned count;
} deflate_output;

#define DEFLATE_MOST_PUT 56

/* Append at most DEFLATE_MOST_PUT bits. */
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

/* The length after those that have the code of this number, after 257. */
static inline unsigned deflate_lengths_end(unsigned code) {
    return code < 28 ? DEFLATE_LEAST_LENGTHS[code + 1] : DEFLATE_LONGEST_MATCH + 1;
}

/* Return the symbol of a distance. No branch depends on the distance, since it cannot be predicted. */
static inline unsigned deflate_distance_code(uint32_t distance, unsigned *extra) {
    uint32_t rest = distance - 1;
    unsigned bits = highest_bit(rest | 2) - 1;
    *extra = bits;
    return 2 * bits + (rest >> bits);
}

static inline uint32_t deflate_first_length(uint32_t length) {
    /* What remains of a longer match is a match too. */
    if (length <= DEFLATE_LONGEST_MATCH)
        return length;
    return length - DEFLATE_LONGEST_MATCH < DEFLATE_LEAST_MATCH ? length - DEFLATE_LEAST_MATCH : DEFLATE_LONGEST_MATCH;
}

/* A token is a literal or a match, so that both take the same steps: which comes next cannot be predicted. Bits 0 to 8
   are the byte, or 256 and the length less the least one, bits 9 to 13 the symbol of the distance, or that of none, the
   others the bits that follow the distance. */
#define DEFLATE_NO_DISTANCE 30
#define DEFLATE_TOKEN_UNITS 512
#define DEFLATE_TOKEN_UNIT(token) ((token) & 511)
#define DEFLATE_LENGTH_UNIT(length) (256 + (length) - DEFLATE_LEAST_MATCH)
#define DEFLATE_TOKEN_DISTANCE(token) ((token) >> 9 & 31)
#define DEFLATE_TOKEN_FOLLOWING(token) ((token) >> 14)

/* The next byte of the content and the next match. */
typedef struct {
    uint32_t at;
    size_t next;
} deflate_place;

/* The costs in bits of literals, of lengths, and of distances. */
typedef struct {
    int16_t literals[256], lengths[DEFLATE_LONGEST_MATCH + 1], distances[DEFLATE_DISTANCES];
} deflate_costs;

static uint8_t deflate_cost(uint8_t bits) {
    return bits > 0 ? bits : DEFLATE_UNKNOWN_COST;
}

static void deflate_set_costs(deflate_costs *costs, const deflate_lengths *lengths) {
    for (unsigned byte = 0; byte < 256; byte++)
        costs->literals[byte] = deflate_cost(lengths->literals[byte]);
    /* Of a length that is not doubted any number of bits is right. */
    memset(costs->lengths, 0x80, sizeof costs->lengths);
    for (unsigned length = DEFLATE_LEAST_MATCH; length <= DEFLATE_DOUBTED_MATCH; length++)
        costs->lengths[length] = deflate_cost(lengths->literals[257 + length - DEFLATE_LEAST_MATCH]);
    for (unsigned symbol = 0; symbol < 30; symbol++)
        costs->distances[symbol] = deflate_cost(lengths->distances[symbol]) + DEFLATE_DISTANCE_BITS[symbol];
}

/* Return 1 if a match takes more bits than its bytes, else 0. A doubted match has three bytes or four. */
static inline uint32_t deflate_is_dear(const deflate_costs *costs, const uint8_t *bytes, uint32_t length,
                                       unsigned distance) {
    int as_literals = costs->literals[bytes[0]] + costs->literals[bytes[1]] + costs->literals[bytes[2]];
    as_literals += costs->literals[bytes[3]] & -(int)(length > DEFLATE_LEAST_MATCH);
    return as_literals <= costs->lengths[length] + costs->distances[distance];
}

static inline void deflate_add_literals(uint32_t *to, const uint8_t *bytes, int count) {
    for (int index = 0; index < count; index++)
        to[index] = bytes[index] | DEFLATE_NO_DISTANCE << 9;
}

/* Write the tokens of a block, from the place on, which is moved behind them; return their number. */
static size_t deflate_add_tokens(const lz_moved *moved, deflate_place *place, const deflate_costs *costs,
                                 uint32_t *tokens) {
    uint32_t *to = tokens, *end = tokens + DEFLATE_BLOCK_TOKENS, at = place->at;
    size_t next = place->next;
    while (to < end) {
        const lz_match *match = moved->rows + next;
        uint32_t literals_end = next < moved->count ? match->at : moved->size;
        /* Whether there are literals, mostly few, cannot be predicted; a match may have been begun by the last block. */
        uint32_t count = literals_end > at ? literals_end - at : 0, room = (uint32_t)(end - to);
        uint32_t first = count < 8 ? count : 8;
        deflate_add_literals(to, moved->bytes + at, 8);
        if (count > 8) {
            first = count < room ? count : room;
            for (uint32_t index = 8; index < first; index += 8)
                deflate_add_literals(to + index, moved->bytes + at + index, 8);
        }
        to += first;
        at += first;
        if (first < count || next >= moved->count)
            break;
        uint32_t length = match->at + match->length - at;
        unsigned following, distance = deflate_distance_code(match->distance, &following);
        uint32_t with_distance = 256 | distance << 9 | ((match->distance - 1) & ((1u << following) - 1)) << 14;
        if (length <= DEFLATE_LONGEST_MATCH) {
            uint32_t is_dear = deflate_is_dear(costs, moved->bytes + at, length, distance);
            uint32_t token = with_distance + (length - DEFLATE_LEAST_MATCH);
            deflate_add_literals(to, moved->bytes + at, DEFLATE_DOUBTED_MATCH);
            *to = token ^ ((token ^ *to) & -is_dear);
            to += 1 + ((length - 1) & -is_dear);
            at += length;
            next++;
            continue;
        }
        *to++ = with_distance + (deflate_first_length(length) - DEFLATE_LEAST_MATCH);
        at += deflate_first_length(length);
    }
    place->at = at;
    place->next = next;
    return (size_t)(to - tokens);
}

static void deflate_count(const uint32_t *tokens, size_t count, deflate_writing_code *literals,
                          deflate_writing_code *distances) {
    /* Neighbours are counted apart, as a counter that was just written must be waited for. */
    uint32_t units[2][DEFLATE_TOKEN_UNITS] = {{0}}, far[4][DEFLATE_DISTANCES] = {{0}};
    for (size_t index = 0; index < count; index++) {
        units[index & 1][DEFLATE_TOKEN_UNIT(tokens[index])]++;
        far[index & 3][DEFLATE_TOKEN_DISTANCE(tokens[index])]++;
    }
    memset(literals->frequency, 0, sizeof literals->frequency);
    memset(distances->frequency, 0, sizeof distances->frequency);
    for (unsigned byte = 0; byte < 256; byte++)
        literals->frequency[byte] = units[0][byte] + units[1][byte];
    for (unsigned code = 0; code < 29; code++)
        for (unsigned length = DEFLATE_LEAST_LENGTHS[code]; length < deflate_lengths_end(code); length++) {
            unsigned unit = DEFLATE_LENGTH_UNIT(length);
            literals->frequency[257 + code] += units[0][unit] + units[1][unit];
        }
    for (unsigned symbol = 0; symbol < 30; symbol++)
        distances->frequency[symbol] = far[0][symbol] + far[1][symbol] + far[2][symbol] + far[3][symbol];
    literals->frequency[DEFLATE_END_OF_BLOCK] = 1;
}

/* Write the lengths of both codes. */
static void deflate_put_codes(deflate_output *out, const deflate_writing_code *literals,
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
    deflate_put(out, (uint64_t)(literal_count - 257), 5);
    deflate_put(out, (uint64_t)(distance_count - 1), 5);
    deflate_put(out, (uint64_t)(length_count - 4), 4);
    for (int index = 0; index < length_count; index++)
        deflate_put(out, code.lengths[DEFLATE_LENGTHS_ORDER[index]], 3);
    for (int index = 0; index < symbol_count; index++) {
        unsigned symbol = symbols[index], extra = symbol < 16 ? 0 : symbol == 16 ? 2 : symbol == 17 ? 3 : 7;
        deflate_put(out, code.codes[symbol], code.lengths[symbol]);
        deflate_put(out, repeats[index], extra);
    }
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

typedef struct {
    uint64_t bits;
    unsigned count;
} deflate_bit_string;

/* Return the bits of a token, at most 48; `units` and `far` are those of `deflate_put_tokens`. */
static inline deflate_bit_string deflate_token_bits(uint32_t token, const uint32_t *units, const uint32_t *far) {
    uint32_t unit = units[DEFLATE_TOKEN_UNIT(token)], distance = far[DEFLATE_TOKEN_DISTANCE(token)];
    uint64_t following = (uint64_t)DEFLATE_TOKEN_FOLLOWING(token) << (distance >> 16 & 255);
    deflate_bit_string result = {(unit & 0xFFFFFF) | ((distance & 0xFFFF) | following) << (unit >> 24),
                                 (unit >> 24) + (distance >> 24)};
    return result;
}

static void deflate_put_tokens(deflate_output *output, const uint32_t *tokens, size_t count,
                               const deflate_writing_code *literals, const deflate_writing_code *distances) {
    /* The bits of each token's unit and their number from bit 24 on; the code of each distance, the number of its bits
       from bit 16 on, and that of all bits from bit 24 on. */
    uint32_t units[DEFLATE_TOKEN_UNITS], far[DEFLATE_DISTANCES] = {0};
    for (unsigned byte = 0; byte < 256; byte++)
        units[byte] = literals->codes[byte] | (uint32_t)literals->lengths[byte] << 24;
    for (unsigned code = 0; code < 29; code++) {
        unsigned least = DEFLATE_LEAST_LENGTHS[code], bits = literals->lengths[257 + code];
        uint32_t first = literals->codes[257 + code] | (bits + DEFLATE_LENGTH_BITS[code]) << 24;
        for (unsigned length = least; length < deflate_lengths_end(code); length++)
            units[DEFLATE_LENGTH_UNIT(length)] = first | (length - least) << bits;
    }
    for (unsigned symbol = 0; symbol < 30; symbol++) {
        uint32_t bits = distances->lengths[symbol];
        far[symbol] = distances->codes[symbol] | bits << 16 | (bits + DEFLATE_DISTANCE_BITS[symbol]) << 24;
    }
    /* A copy, as the compiler cannot know that the bytes written are not those of `output`. */
    deflate_output here = *output, *out = &here;
    const uint32_t *token = tokens, *end = tokens + count;
    /* Each call waits for the one before, so two tokens are put at once. */
    for (; end - token >= 2; token += 2) {
        deflate_bit_string first = deflate_token_bits(token[0], units, far);
        deflate_bit_string second = deflate_token_bits(token[1], units, far);
        if (first.count + second.count <= DEFLATE_MOST_PUT) {
            deflate_put(out, first.bits | second.bits << first.count, first.count + second.count);
        } else {
            deflate_put(out, first.bits, first.count);
            deflate_put(out, second.bits, second.count);
        }
    }
    if (token < end) {
        deflate_bit_string last = deflate_token_bits(*token, units, far);
        deflate_put(out, last.bits, last.count);
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
    size_t pieces = size / DEFLATE_STORED_BYTES + size / DEFLATE_BLOCK_TOKENS + 2;
    return size + pieces * 8 + DEFLATE_BLOCK_HEAD + GZIP_HEAD + GZIP_TAIL + LZ_SLACK;
}

/* Write a member with gzip_bound(moved->size) bytes of room; return its size. `crc` is that of the content, `lengths` are
   those of codes for similar content, `tokens` has room for DEFLATE_BLOCK_TOKENS and DEFLATE_TOKEN_SLACK. */
static ptrdiff_t gzip_write(const lz_moved *moved, uint8_t *out, uint32_t crc, const deflate_lengths *lengths,
                            uint32_t *tokens) {
    static const uint8_t head[GZIP_HEAD] = {0x1F, 0x8B, 8};
    deflate_writing_code literals, distances;
    deflate_costs costs;
    deflate_output to = {out + GZIP_HEAD, 0, 0};
    deflate_place place = {0, 0};
    memcpy(out, head, GZIP_HEAD);
    deflate_set_costs(&costs, lengths);
    do {
        uint32_t at = place.at;
        size_t count = deflate_add_tokens(moved, &place, &costs, tokens);
        unsigned is_last = place.at == moved->size;
        deflate_count(tokens, count, &literals, &distances);
        deflate_design(&literals, 286, DEFLATE_LONGEST_CODE);
        deflate_design(&distances, 30, DEFLATE_LONGEST_CODE);
        deflate_output before = to;
        deflate_put(&to, is_last | 2 << 1, 3);
        deflate_put_codes(&to, &literals, &distances);
        uint64_t bits = (uint64_t)(to.to - before.to) * 8 + deflate_size_in_bits(&literals, &distances);
        if (bits / 8 < place.at - at) {
            deflate_put_tokens(&to, tokens, count, &literals, &distances);
        } else {
            to = before;
            deflate_put_stored(&to, moved->bytes + at, place.at - at, is_last);
        }
    } while (place.at < moved->size);
    deflate_align(&to);
    for (int index = 0; index < 4; index++) {
        to.to[index] = (uint8_t)(crc >> 8 * index);
        to.to[4 + index] = (uint8_t)(moved->size >> 8 * index);
    }
    return to.to + GZIP_TAIL - out;
}

#endif
