/* Designing the codes of deflate (RFC 1951) for the frequencies of symbols. */

#ifndef GREGOR_DEFLATE_DESIGN_H
#define GREGOR_DEFLATE_DESIGN_H

#include "deflate_reading.h"

/* So many symbols are sorted by insertion, more by their digits. */
#define DEFLATE_FEW_SYMBOLS 32

typedef struct {
    uint32_t frequency[DEFLATE_LITERALS];
    uint16_t codes[DEFLATE_LITERALS];
    uint8_t lengths[DEFLATE_LITERALS];
} deflate_writing_code;

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

/* Sort the symbols in `order` by their frequencies, of which larger ones count as 65,535. */
static void deflate_sort(const deflate_writing_code *code, uint16_t *order, int count) {
    if (count <= DEFLATE_FEW_SYMBOLS) {
        for (int index = 1; index < count; index++) {
            uint16_t symbol = order[index];
            int place = index;
            for (; place > 0 && code->frequency[order[place - 1]] > code->frequency[symbol]; place--)
                order[place] = order[place - 1];
            order[place] = symbol;
        }
        return;
    }
    uint16_t sorted[DEFLATE_LITERALS];
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
}

/* Make the code for the frequencies of `symbol_count` symbols, of at most `longest` bits; it has at least two symbols,
   since old readers refuse others. */
static void deflate_design(deflate_writing_code *code, int symbol_count, unsigned longest) {
    uint16_t order[DEFLATE_LITERALS], next_code[DEFLATE_LONGEST_CODE + 2] = {0};
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
    deflate_sort(code, order, count);
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

#endif
