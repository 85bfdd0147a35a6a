/* Matches: the repetitions that a compressor of the Lempel-Ziv family found. lz4, snappy and deflate are different
   encodings of the same thing, literal bytes and matches. A conversion of records keeps keys and values as they are, so
   the matches that the producer's compressor found are moved to the converted records instead of searched again.

   Buffers that are written have LZ_SLACK bytes behind their capacity. Who calls the functions checks nothing: each
   reader stops at the end of its input, and each writer needs the room that its comment states. */

#ifndef GREGOR_LZ_MATCHES_H
#define GREGOR_LZ_MATCHES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LZ_SLACK 64
#define LZ_MALFORMED (-1)
#define LZ_OUT_IS_FULL (-2)

/* `length` bytes at `at` equal those `distance` bytes before. */
typedef struct {
    uint32_t at, length, distance;
} lz_match;

/* `size` bytes, a key or a value, which were at `from` and are at `to` in the converted records. What precedes them
   there since the last span is a header, which resembles the bytes `resembles` before; 0 if there are none. */
typedef struct {
    uint32_t from, to, size, resembles;
} lz_span;

#define LZ_SPAN_SHIFT 4

/* Matches in converted records, which must be valid in blocks that are compressed independently. */
typedef struct {
    const uint8_t *bytes;
    lz_match *rows;
    size_t count, capacity;
    uint32_t size, end;
    uint32_t block, block_end; /* the present block */
    uint32_t match_end, start_end; /* where matches must have ended, and before which they must begin */
    uint32_t block_bytes;    /* a power of two */
    uint32_t most_distance, least_length, least_header;
    uint32_t last_literals;  /* bytes at the end of each block that no match may cover */
    uint32_t last_start;     /* bytes at the end of each block in which no match may begin */
} lz_moved;

static inline uint32_t little_uint32(const uint8_t *data) {
    return data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
}

static inline void lz_copy_match(uint8_t *out, size_t at, size_t distance, size_t length) {
    uint8_t *to = out + at, *end = to + length;
    const uint8_t *from = to - distance;
    if (distance >= 16) {
        /* Nearly always enough, without a branch for each length. */
        memcpy(to, from, 16);
        memcpy(to + 16, from + 16, 16);
        for (to += 32, from += 32; to < end; to += 16, from += 16)
            memcpy(to, from, 16);
    } else if (distance == 1) {
        memset(to, *from, length);
    } else {
        while (to < end)
            *to++ = *from++;
    }
}

static inline void lz_copy_literals(uint8_t *to, const uint8_t *from, size_t size, const uint8_t *from_end) {
    if (size <= 32 && from_end - from >= 32)
        memcpy(to, from, 32);
    else
        memcpy(to, from, size);
}

static inline uint32_t lz_end_of_block(const lz_moved *moved, uint32_t block) {
    uint32_t left = moved->size - block;
    return block + (left < moved->block_bytes ? left : moved->block_bytes);
}

/* Begin with the block of position `at`. */
static void lz_enter_block(lz_moved *moved, uint32_t at) {
    moved->block = at & ~(moved->block_bytes - 1);
    moved->block_end = lz_end_of_block(moved, moved->block);
    uint32_t size = moved->block_end - moved->block;
    moved->match_end = size > moved->last_literals ? moved->block_end - moved->last_literals : moved->block;
    moved->start_end = size > moved->last_start ? moved->block_end - moved->last_start : moved->block;
}

/* Note a match inside of the present block, or make the last match longer that it continues. */
static inline void lz_note(lz_moved *moved, uint32_t at, uint32_t length, uint32_t distance) {
    lz_match *last = moved->rows + moved->count - 1;
    if (at == moved->end && at > moved->block && moved->count > 0 && last->distance == distance) {
        last->length += length;
        moved->end += length;
        return;
    }
    if (length < moved->least_length || at >= moved->start_end || moved->count >= moved->capacity)
        return;
    lz_match *row = moved->rows + moved->count++;
    row->at = at;
    row->length = length;
    row->distance = distance;
    moved->end = at + length;
}

/* Add the parts of a match that its blocks allow. */
static void lz_add_parts(lz_moved *moved, uint32_t at, uint32_t length, uint32_t distance) {
    for (uint32_t end = at + length; at < end; at = moved->block_end) {
        if (at >= moved->block_end)
            lz_enter_block(moved, at);
        if (at - moved->block < distance)
            at = moved->block + distance;
        uint32_t part_end = end < moved->match_end ? end : moved->match_end;
        if (at < part_end)
            lz_note(moved, at, part_end - at, distance);
    }
}

/* Add a match; with `extends` also the equal bytes before it that no match has. */
static inline void lz_add(lz_moved *moved, uint32_t at, uint32_t length, uint32_t distance, int extends) {
    if (distance > moved->most_distance)
        return;
    if (at < moved->end) {
        /* A header's match goes on into the value. */
        if (at + length <= moved->end)
            return;
        length -= moved->end - at;
        at = moved->end;
    }
    if (at >= moved->block_end || at < moved->block)
        lz_enter_block(moved, at);
    if (extends) {
        const uint8_t *bytes = moved->bytes;
        while (at > moved->end && at - moved->block > distance && bytes[at - 1] == bytes[at - 1 - distance]) {
            at--;
            length++;
        }
    }
    if (at - moved->block < distance || at + length > moved->match_end)
        lz_add_parts(moved, at, length, distance);
    else
        lz_note(moved, at, length, distance);
}

/* Return the number of equal bytes at `at` and `distance` before, up to `end`; may read LZ_SLACK bytes behind it. */
static inline uint32_t lz_equal_bytes(const uint8_t *bytes, uint32_t at, uint32_t end, uint32_t distance) {
    uint32_t start = at;
    while (at < end) {
        uint64_t here, there;
        memcpy(&here, bytes + at, 8);
        memcpy(&there, bytes + at - distance, 8);
        if (here != there) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
            at += (uint32_t)__builtin_ctzll(here ^ there) >> 3;
#else
            at += (uint32_t)__builtin_clzll(here ^ there) >> 3;
#endif
            break;
        }
        at += 8;
    }
    return (at < end ? at : end) - start;
}

/* Find matches in a header from `start` to `end`: the last match may go on, and headers resemble each other. What is
   equal at the end of the header may go on in the key or value behind it, which ends at `span_end`. */
static inline void lz_add_header(lz_moved *moved, uint32_t start, uint32_t end, uint32_t span_end, uint32_t resembles) {
    if (start < moved->end)
        start = moved->end;
    if (start >= end)
        return;
    if (moved->count > 0 && moved->end == start && start > moved->block && start < moved->block_end) {
        uint32_t limit = end < moved->match_end ? end : moved->match_end;
        lz_match *last = moved->rows + moved->count - 1;
        uint32_t more = start < limit ? lz_equal_bytes(moved->bytes, start, limit, last->distance) : 0;
        last->length += more;
        moved->end = start += more;
    }
    if (resembles == 0 || resembles > start)
        return;
    while (start < end) {
        uint32_t equal = lz_equal_bytes(moved->bytes, start, end, resembles);
        if (equal > 0 && start + equal == end)
            equal += lz_equal_bytes(moved->bytes, end, span_end, resembles);
        if (equal >= moved->least_header)
            lz_add(moved, start, equal, resembles, 0);
        start += equal + 1;
    }
}

/* Add the parts of a match that its spans allow. `at` and `end` are old positions in the span of this `number`. */
static void lz_move_parts(lz_moved *moved, uint32_t at, uint32_t end, uint32_t distance, const lz_span *spans,
                          size_t number, const uint32_t *span_at) {
    const lz_span *span = spans + number;
    uint32_t source = at - distance;
    const lz_span *holder = distance <= at - span->from ? span : spans + span_at[source >> LZ_SPAN_SHIFT];
    while (at < end) {
        while (holder->from + holder->size <= source)
            holder++;
        if (source < holder->from) {
            uint32_t skipped = holder->from - source;
            at += skipped;
            source += skipped;
            continue;
        }
        uint32_t piece = holder->from + holder->size - source;
        piece = piece < end - at ? piece : end - at;
        uint32_t to = span->to + (at - span->from), to_source = holder->to + (source - holder->from);
        lz_add(moved, to, piece, to - to_source, at == span->from || source == holder->from);
        at += piece;
        source += piece;
    }
}

/* Move matches as long as they are plain: in this one span, from one span, and far from the ends of blocks and spans.
   Nearly all are. Which span a match copies from cannot be predicted, and a mispredicted branch costs as much as all
   else, so there is only one branch for all conditions. Returns the first match that is left. */
static const lz_match *lz_move_plain(lz_moved *moved, const lz_match *found, const lz_match *found_end,
                                     const lz_span *spans, size_t number, const uint32_t *span_at) {
    const lz_span *span = spans + number;
    uint32_t from = span->from, end = from + span->size, shift = span->to - from, done = moved->end;
    uint32_t block = moved->block, most_distance = moved->most_distance, least_length = moved->least_length;
    uint32_t most_end = moved->start_end < moved->match_end ? moved->start_end : moved->match_end;
    uint32_t last_distance = moved->count > 0 ? moved->rows[moved->count - 1].distance : 0;
    lz_match *row = moved->rows + moved->count, *rows_end = moved->rows + moved->capacity;
    /* No span behind this one may be looked up: behind the last one there is none. */
    for (; found < found_end && found->at < end && row < rows_end; found++) {
        uint32_t at = found->at, length = found->length, source = at - found->distance;
        size_t place = span_at[source >> LZ_SPAN_SHIFT];
        place += (number - place) & -(size_t)(found->distance < at - from);
        const lz_span *holder = spans + place;
        while (holder->from + holder->size <= source)
            holder++;
        uint32_t to = at + shift, source_at = source - holder->from, to_source = source_at + holder->to;
        uint32_t distance = to - to_source;
        int is_plain = (at > from) & (at + length <= end) & (source > holder->from) &
                       (source_at + length <= holder->size) & (to >= done) & (to + length <= most_end) &
                       (to_source >= block) & (length >= least_length) & (distance <= most_distance) &
                       !((to == done) & (distance == last_distance));
        if (!is_plain)
            break;
        row->at = to;
        row->length = length;
        row->distance = last_distance = distance;
        row++;
        done = to + length;
    }
    moved->count = (size_t)(row - moved->rows);
    moved->end = done;
    return found;
}

/* Move the `count` matches that were found before a conversion to the `span_count` spans after it. `span_at` has the
   number of the first span that ends behind each multiple of 1 << LZ_SPAN_SHIFT of the old positions. */
static void lz_move(lz_moved *moved, const lz_match *found, size_t count, const lz_span *spans, size_t span_count,
                    const uint32_t *span_at) {
    const lz_match *found_end = found + count;
    uint32_t written = 0;
    for (size_t number = 0; number < span_count; number++) {
        const lz_span *span = spans + number;
        uint32_t span_end = span->from + span->size;
        lz_add_header(moved, written, span->to, span->to + span->size, span->resembles);
        written = span->to + span->size;
        while (found < found_end && found->at + found->length <= span->from)
            found++;
        while (found < found_end && found->at < span_end) {
            found = lz_move_plain(moved, found, found_end, spans, number, span_at);
            if (found == found_end || found->at >= span_end)
                break;
            uint32_t match_end = found->at + found->length;
            uint32_t at = found->at > span->from ? found->at : span->from;
            uint32_t end = match_end < span_end ? match_end : span_end;
            lz_move_parts(moved, at, end, found->distance, spans, number, span_at);
            if (match_end > span_end)
                break;
            found++;
        }
    }
    if (written < moved->size)
        lz_add_header(moved, written, moved->size, moved->size, 0);
}

#endif
