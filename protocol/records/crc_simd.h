/* CRC-32 (zlib's polynomial) and CRC-32C (Castagnoli's), as fast as the processor allows.

   Call crc_prepare once before anything else; what follows is free of state and locks. Both sums take the data in
   one go: start with crc 0, or with the sum of what precedes `data`. */

#ifndef GREGOR_CRC_SIMD_H
#define GREGOR_CRC_SIMD_H

#include <stddef.h>
#include <stdint.h>

void crc_prepare(void);

uint32_t crc32_ieee(uint32_t crc, const unsigned char *data, size_t size_bytes);
uint32_t crc32_castagnoli(uint32_t crc, const unsigned char *data, size_t size_bytes);

static inline uint32_t crc32_of(const unsigned char *data, ptrdiff_t start, ptrdiff_t end) {
    return crc32_ieee(0, data + start, (size_t)(end - start));
}

static inline uint32_t crc32c_of(const unsigned char *data, ptrdiff_t start, ptrdiff_t end) {
    return crc32_castagnoli(0, data + start, (size_t)(end - start));
}

/* 1 if this processor multiplies without carry (PCLMULQDQ), 0 if the tables do all the work. */
int crc_is_simd(void);

#endif
