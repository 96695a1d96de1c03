/* posit16 (es = 2) one scalar at a time, as an emulation library does it: decode, compute in double, encode. */
#include <math.h>
#include <stdint.h>

static double decode(uint16_t code) {
    if (code == 0) return 0.0;
    if (code == 0x8000) return NAN;
    int negative = code >> 15;
    uint16_t body = (uint16_t)((negative ? (uint16_t)-code : code) << 1);
    int ones = body >> 15, run = 0;
    while (run < 15 && ((body >> (15 - run)) & 1) == ones) run++;
    int regime = ones ? run - 1 : -run;
    uint32_t rest = ((uint32_t)body << (run + 1)) & 0xFFFF;
    double number = ldexp(1.0 + (double)((rest << 2) & 0xFFFF) / 65536.0, regime * 4 + (int)(rest >> 14));
    return negative ? -number : number;
}

static uint16_t encode(double number) {
    if (number == 0) return 0;
    if (!isfinite(number)) return 0x8000;
    double size = fabs(number);
    if (size >= 0x1p56) size = 0x1p56;
    if (size <= 0x1p-56) size = 0x1p-56;
    uint16_t low = 1, high = 0x7FFF; /* the code's number is at most size */
    while (low < high) {
        uint16_t middle = (uint16_t)((low + high + 1) / 2);
        if (decode(middle) <= size) low = middle; else high = (uint16_t)(middle - 1);
    }
    if (low < 0x7FFF && decode(low) != size) {
        /* The middle of two codes is the code between them of one more bit. */
        int exponent_below, exponent_above;
        double below = decode(low), above = decode((uint16_t)(low + 1));
        frexp(below, &exponent_below);
        frexp(above, &exponent_above);
        double middle = exponent_above - exponent_below > 1 ? sqrt(below * above) : (below + above) / 2;
        if (size > middle || (size == middle && (low & 1))) low++;
    }
    return number < 0 ? (uint16_t)-low : low;
}

uint16_t posit16_add(uint16_t x, uint16_t y) { return encode(decode(x) + decode(y)); }
uint16_t posit16_mul(uint16_t x, uint16_t y) { return encode(decode(x) * decode(y)); }
uint8_t posit16_less(uint16_t x, uint16_t y) { return (int16_t)x < (int16_t)y; }
uint16_t posit16_from_float(float x) { return encode(x); }
float posit16_to_float(uint16_t x) { return (float)decode(x); }
uint16_t posit16_lowest(void) { return 0x8001; }
