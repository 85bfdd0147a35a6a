/* The buffers of a conversion between compressed batches: what codec_memory.py does with libraries, for the compiled
   module. The codecs' numbers are those in a batch's attributes. */

#ifndef GREGOR_CODEC_MEMORY_H
#define GREGOR_CODEC_MEMORY_H

#include <stdlib.h>

#include "deflate_writing.h"
#include "lz4_frames.h"
#include "snappy_blocks.h"

#define CODEC_GZIP 1
#define CODEC_SNAPPY 2
#define CODEC_LZ4 3

/* Room before the compressed bytes for the header of a message. */
#define HEAD_ROOM 34
/* The most bytes by which a record of v2 grows as a message of v1. */
#define MOST_GROWTH 34

#define INT32_SIZE 4
/* A power of two: the number of lengths of values of which the last message is known. */
#define LAST_MESSAGES 64

typedef struct {
    ptrdiff_t at, value_to, key_bytes, value_bytes;
} noted_message;

typedef struct {
    uint8_t *raw, *converted, *encoded;
    lz_match *found, *moved;
    lz_span *spans;
    uint32_t *span_at, *tokens;
    ptrdiff_t raw_capacity, record_capacity, converted_capacity;
    size_t found_count, span_count, next_place;
    uint32_t crc;
    deflate_lengths lengths;
    noted_message last, lasts[LAST_MESSAGES];
} CodecMemory;

static inline void release_memory(CodecMemory *memory) {
    free(memory->raw);
    free(memory->converted);
    free(memory->encoded);
    free(memory->found);
    free(memory->moved);
    free(memory->spans);
    free(memory->span_at);
    free(memory->tokens);
    memset(memory, 0, sizeof *memory);
}

static inline size_t encoded_bound(size_t size) {
    size_t lz4 = lz4_bound(size), snappy = snappy_bound(size), gzip = gzip_bound(size);
    size_t largest = lz4 > snappy ? lz4 : snappy;
    return HEAD_ROOM + (largest > gzip ? largest : gzip);
}

/* Make room for so many decompressed bytes and records; return 0 if there is no memory. Pages that are not written take
   none. */
static int reserve_memory(CodecMemory *memory, ptrdiff_t raw_bytes, ptrdiff_t record_count) {
    if (raw_bytes <= memory->raw_capacity && record_count <= memory->record_capacity)
        return 1;
    size_t raw = (size_t)(raw_bytes > memory->raw_capacity ? raw_bytes : memory->raw_capacity);
    size_t records = (size_t)(record_count > memory->record_capacity ? record_count : memory->record_capacity);
    size_t converted = raw + MOST_GROWTH * records;
    release_memory(memory);
    memory->raw = malloc(raw + LZ_SLACK);
    memory->converted = malloc(converted + LZ_SLACK);
    memory->encoded = malloc(encoded_bound(converted));
    memory->found = malloc((raw / 3 + 1) * sizeof *memory->found);
    memory->moved = malloc((raw / 3 + 4 * records + 1) * sizeof *memory->moved);
    memory->spans = malloc((2 * records + 1) * sizeof *memory->spans);
    memory->span_at = malloc(((raw >> LZ_SPAN_SHIFT) + 2) * sizeof *memory->span_at);
    memory->tokens = malloc((DEFLATE_BLOCK_TOKENS + DEFLATE_TOKEN_SLACK) * sizeof *memory->tokens);
    if (!(memory->raw && memory->converted && memory->encoded && memory->found && memory->moved && memory->spans &&
          memory->span_at && memory->tokens)) {
        release_memory(memory);
        return 0;
    }
    memory->raw_capacity = (ptrdiff_t)raw;
    memory->record_capacity = (ptrdiff_t)records;
    memory->converted_capacity = (ptrdiff_t)converted;
    return 1;
}

/* Decompress to `raw`; return the size of the content, LZ_OUT_IS_FULL, or LZ_MALFORMED for data that is broken or that
   the libraries must read. For gzip `crc` is set and not checked. */
static ptrdiff_t read_content(CodecMemory *memory, int codec, const unsigned char *data, ptrdiff_t size) {
    memory->found_count = memory->span_count = memory->next_place = 0;
    memset(&memory->last, 0, sizeof memory->last);
    memset(memory->lasts, 0, sizeof memory->lasts);
    size_t data_bytes = (size_t)size, capacity = (size_t)memory->raw_capacity;
    if (codec == CODEC_GZIP)
        return gzip_read(data, data_bytes, memory->raw, capacity, memory->found, &memory->found_count, &memory->crc,
                         &memory->lengths);
    if (codec == CODEC_SNAPPY)
        return snappy_read(data, data_bytes, memory->raw, capacity, memory->found, &memory->found_count);
    if (codec == CODEC_LZ4)
        return lz4_read(data, data_bytes, memory->raw, capacity, memory->found, &memory->found_count);
    return LZ_MALFORMED;
}

static inline void add_span(CodecMemory *memory, ptrdiff_t from, ptrdiff_t to, ptrdiff_t size, ptrdiff_t resembles) {
    lz_span *span = memory->spans + memory->span_count;
    span->from = (uint32_t)from;
    span->to = (uint32_t)to;
    span->size = (uint32_t)size;
    span->resembles = (uint32_t)resembles;
    for (; memory->next_place << LZ_SPAN_SHIFT < (size_t)(from + size); memory->next_place++)
        memory->span_at[memory->next_place] = (uint32_t)memory->span_count;
    memory->span_count++;
}

/* Note a message at `at` in `converted` whose key and value were at `key_from` and `value_from` in `raw`, and are at
   `key_to` and `value_to`; at most so many as records were reserved. The message before it whose value has the same
   length, or else the last one, resembles it. */
static inline void note_message(CodecMemory *memory, ptrdiff_t at, ptrdiff_t key_from, ptrdiff_t key_to,
                                ptrdiff_t value_from, ptrdiff_t value_to, ptrdiff_t value_bytes) {
    ptrdiff_t key_bytes = value_to - INT32_SIZE - key_to;
    noted_message *last = memory->lasts + ((value_bytes + 7 * key_bytes) & (LAST_MESSAGES - 1));
    int is_like = last->value_to > 0 && last->value_bytes == value_bytes && last->key_bytes == key_bytes;
    noted_message *like = is_like ? last : &memory->last;
    ptrdiff_t like_at = like->at, like_value_to = like->value_to;
    memory->last.at = last->at = at;
    memory->last.value_to = last->value_to = value_to;
    memory->last.value_bytes = last->value_bytes = value_bytes;
    memory->last.key_bytes = last->key_bytes = key_bytes;
    if (key_bytes > 0)
        add_span(memory, key_from, key_to, key_bytes, like_value_to > 0 ? at - like_at : 0);
    ptrdiff_t resembles = key_bytes > 0 ? value_to - like_value_to : at - like_at;
    add_span(memory, value_from, value_to, value_bytes, like_value_to > 0 ? resembles : 0);
}

/* Compress `size` bytes of `converted`, of which `crc` is the CRC-32, behind HEAD_ROOM bytes in `encoded`; return their
   size. */
static ptrdiff_t write_content(CodecMemory *memory, int codec, int is_v0, ptrdiff_t size, uint32_t crc) {
    lz_moved moved = {0};
    moved.bytes = memory->converted;
    moved.rows = memory->moved;
    moved.capacity = (size_t)(memory->raw_capacity / 3 + 4 * memory->record_capacity);
    moved.size = (uint32_t)size;
    if (codec == CODEC_GZIP) {
        moved.block_bytes = 1u << 31;
        moved.most_distance = DEFLATE_MOST_DISTANCE;
        moved.least_length = DEFLATE_LEAST_MATCH;
        moved.least_header = 4;
    } else if (codec == CODEC_SNAPPY) {
        moved.block_bytes = XERIAL_BLOCK_BYTES;
        moved.most_distance = SNAPPY_MOST_DISTANCE;
        moved.least_length = SNAPPY_LEAST_MATCH;
        moved.least_header = 5;
    } else {
        moved.block_bytes = LZ4_BLOCK_BYTES;
        moved.most_distance = LZ4_MOST_DISTANCE;
        moved.least_length = moved.least_header = LZ4_LEAST_MATCH;
        moved.last_literals = LZ4_LAST_LITERALS;
        moved.last_start = LZ4_LAST_START;
    }
    lz_move(&moved, memory->found, memory->found_count, memory->spans, memory->span_count, memory->span_at);
    uint8_t *out = memory->encoded + HEAD_ROOM;
    if (codec == CODEC_GZIP)
        return gzip_write(&moved, out, crc, &memory->lengths, memory->tokens);
    if (codec == CODEC_SNAPPY)
        return snappy_write(&moved, out);
    return lz4_write(&moved, out, is_v0);
}

#endif
