/* Two ways to the same sums: tables, eight bytes a step, anywhere; carry-less multiplication on x86-64.

   Folding, after V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel,
   2009): a CRC is a remainder modulo the polynomial P, so 128 bits that stand D bits before the end of the data may
   be replaced by their product with x^D mod P, added to the 128 bits that stand there. Four lanes are folded side by
   side, then into one, then the last lane, which ends where the data ends, and Barrett's reduction gives the remainder
   of the 16 bytes that are left. All is bit-reflected, as both CRCs are. */

#include "crc_simd.h"

#include <string.h>

#define IEEE_REFLECTED 0xEDB88320u
#define CASTAGNOLI_REFLECTED 0x82F63B78u
/* The quotient of x^64 and P. */
#define IEEE_QUOTIENT 0x1F7011641u
#define CASTAGNOLI_QUOTIENT 0xDEA713F1u

#if (defined(__x86_64__) || defined(_M_X64)) && (defined(__GNUC__) || defined(__clang__))
#define HAVE_FOLDING 1
#include <immintrin.h>
#else
#define HAVE_FOLDING 0
#endif

#define LANE_BYTES 16
#define FOUR_LANES_BYTES 64

typedef struct {
    uint32_t table[8][256]; /* table[n][b]: what byte b adds when n bytes follow it in a step */
    uint64_t fold_four[2];  /* x^(512+32) and x^(512-32) mod P: moves a lane's halves 64 bytes on */
    uint64_t fold_one[2];   /* x^(128+32) and x^(128-32) mod P: 16 bytes on */
    uint64_t fold_half[2];  /* x^64 mod P: 8 bytes on */
    uint64_t barrett[2];    /* P and the quotient */
} crc_constants;

static crc_constants ieee, castagnoli;
static int simd = 0;

/* x^power mod P, reflected and moved up one bit, which is where a product of reflected factors needs it. */
static uint64_t power_of_x(uint32_t polynomial, int power) {
    uint32_t remainder = 0x80000000u;
    while (power-- > 0)
        remainder = (remainder >> 1) ^ (remainder & 1 ? polynomial : 0);
    return (uint64_t)remainder << 1;
}

static void prepare(crc_constants *constants, uint32_t polynomial, uint64_t quotient) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? polynomial : 0);
        constants->table[0][byte] = crc;
    }
    for (int follow = 1; follow < 8; follow++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t nearer = constants->table[follow - 1][byte];
            constants->table[follow][byte] = (nearer >> 8) ^ constants->table[0][nearer & 0xFF];
        }
    constants->fold_four[0] = power_of_x(polynomial, 512 + 32);
    constants->fold_four[1] = power_of_x(polynomial, 512 - 32);
    constants->fold_one[0] = power_of_x(polynomial, 128 + 32);
    constants->fold_one[1] = power_of_x(polynomial, 128 - 32);
    constants->fold_half[0] = power_of_x(polynomial, 64);
    constants->barrett[0] = (uint64_t)polynomial << 1 | 1;
    constants->barrett[1] = quotient;
}

void crc_prepare(void) {
    prepare(&ieee, IEEE_REFLECTED, IEEE_QUOTIENT);
    prepare(&castagnoli, CASTAGNOLI_REFLECTED, CASTAGNOLI_QUOTIENT);
#if HAVE_FOLDING
    __builtin_cpu_init();
    simd = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

int crc_is_simd(void) { return simd; }

/* `crc` is the inner state here, not the inverted value that callers see. */
static uint32_t by_tables(const crc_constants *constants, uint32_t crc, const unsigned char *data, size_t size_bytes) {
    const uint32_t(*table)[256] = constants->table;
    while (size_bytes >= 8) {
        uint32_t low = crc ^ (data[0] | data[1] << 8 | data[2] << 16 | (uint32_t)data[3] << 24);
        crc = table[7][low & 0xFF] ^ table[6][low >> 8 & 0xFF] ^ table[5][low >> 16 & 0xFF] ^ table[4][low >> 24] ^
              table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
        data += 8;
        size_bytes -= 8;
    }
    while (size_bytes-- > 0)
        crc = (crc >> 8) ^ table[0][(crc ^ *data++) & 0xFF];
    return crc;
}

#if HAVE_FOLDING

#define FOLDING __attribute__((target("pclmul,sse4.1")))

FOLDING static inline __m128i fold(__m128i lane, __m128i factors, __m128i onto) {
    __m128i low = _mm_clmulepi64_si128(lane, factors, 0x00);
    __m128i high = _mm_clmulepi64_si128(lane, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), onto);
}

FOLDING static inline __m128i lane_at(const unsigned char *data) { return _mm_loadu_si128((const __m128i *)data); }

/* Fold a lane onto the lane that ends with the `size_bytes` bytes at `data`, fewer than a lane has; the data begins
   at least a lane before. */
FOLDING static inline __m128i fold_rest(__m128i lane, __m128i factors, const unsigned char *data, size_t size_bytes) {
    static const unsigned char moves[3 * LANE_BYTES] = {
        0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
        0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
        0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    };
    __m128i to_later = lane_at(moves + size_bytes), to_earlier = lane_at(moves + LANE_BYTES + size_bytes);
    __m128i last = lane_at(data + size_bytes - LANE_BYTES);
    __m128i onto = _mm_blendv_epi8(_mm_shuffle_epi8(lane, to_earlier), last, to_earlier);
    return fold(_mm_shuffle_epi8(lane, to_later), factors, onto);
}

/* The remainder of a lane, followed by 32 zero bits. */
FOLDING static inline uint32_t remainder_of(const crc_constants *constants, __m128i lane, __m128i factors) {
    __m128i low_words = _mm_setr_epi32(-1, 0, -1, 0);
    __m128i half = lane_at((const unsigned char *)constants->fold_half);
    __m128i barrett = lane_at((const unsigned char *)constants->barrett);
    lane = _mm_xor_si128(_mm_srli_si128(lane, 8), _mm_clmulepi64_si128(lane, factors, 0x10));
    lane = _mm_xor_si128(_mm_srli_si128(lane, 4), _mm_clmulepi64_si128(_mm_and_si128(lane, low_words), half, 0x00));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(lane, low_words), barrett, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_words), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(lane, quotient), 1);
}

/* For at least LANE_BYTES of data. */
FOLDING static uint32_t by_folding(const crc_constants *constants, uint32_t crc, const unsigned char *data,
                                   size_t size_bytes) {
    __m128i factors = lane_at((const unsigned char *)constants->fold_one);
    __m128i d = _mm_xor_si128(lane_at(data), _mm_cvtsi32_si128((int)crc));
    if (size_bytes < FOUR_LANES_BYTES) {
        data += LANE_BYTES;
        size_bytes -= LANE_BYTES;
    } else {
        __m128i factors_of_four = lane_at((const unsigned char *)constants->fold_four);
        __m128i a = d, b = lane_at(data + 16), c = lane_at(data + 32);
        d = lane_at(data + 48);
        data += FOUR_LANES_BYTES;
        size_bytes -= FOUR_LANES_BYTES;
        while (size_bytes >= FOUR_LANES_BYTES) {
            a = fold(a, factors_of_four, lane_at(data));
            b = fold(b, factors_of_four, lane_at(data + 16));
            c = fold(c, factors_of_four, lane_at(data + 32));
            d = fold(d, factors_of_four, lane_at(data + 48));
            data += FOUR_LANES_BYTES;
            size_bytes -= FOUR_LANES_BYTES;
        }
        d = fold(fold(fold(a, factors, b), factors, c), factors, d);
    }
    while (size_bytes >= LANE_BYTES) {
        d = fold(d, factors, lane_at(data));
        data += LANE_BYTES;
        size_bytes -= LANE_BYTES;
    }
    if (size_bytes > 0)
        d = fold_rest(d, factors, data, size_bytes);
    return remainder_of(constants, d, factors);
}

#endif

static uint32_t sum(const crc_constants *constants, uint32_t crc, const unsigned char *data, size_t size_bytes) {
#if HAVE_FOLDING
    if (simd && size_bytes >= LANE_BYTES)
        return ~by_folding(constants, ~crc, data, size_bytes);
#endif
    return ~by_tables(constants, ~crc, data, size_bytes);
}

uint32_t crc32_ieee(uint32_t crc, const unsigned char *data, size_t size_bytes) {
    return sum(&ieee, crc, data, size_bytes);
}

uint32_t crc32_castagnoli(uint32_t crc, const unsigned char *data, size_t size_bytes) {
    return sum(&castagnoli, crc, data, size_bytes);
}
