/* Whether this processor has what a program was compiled for. Feature names are LLVM's. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "manifest/procedure.h"

#if defined(__x86_64__)
#include <cpuid.h>

#define ARCHITECTURE "x86_64"

enum { EAX, EBX, ECX, EDX };
enum { NONE, AVX_STATE = 0x6, AVX512_STATE = 0xE6, AMX_STATE = 0x60000 };

typedef struct Feature {
  const char *name;
  uint32_t leaf, subleaf;
  int32_t reg, bit;
  uint32_t state; /* bits of XCR0 that the system must have enabled */
} Feature;

/* Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E. */
static const Feature features[] = {
    {"sse3", 1, 0, ECX, 0, NONE},
    {"pclmul", 1, 0, ECX, 1, NONE},
    {"ssse3", 1, 0, ECX, 9, NONE},
    {"fma", 1, 0, ECX, 12, AVX_STATE},
    {"cx16", 1, 0, ECX, 13, NONE},
    {"sse4.1", 1, 0, ECX, 19, NONE},
    {"sse4.2", 1, 0, ECX, 20, NONE},
    {"crc32", 1, 0, ECX, 20, NONE},
    {"movbe", 1, 0, ECX, 22, NONE},
    {"popcnt", 1, 0, ECX, 23, NONE},
    {"aes", 1, 0, ECX, 25, NONE},
    {"avx", 1, 0, ECX, 28, AVX_STATE},
    {"f16c", 1, 0, ECX, 29, AVX_STATE},
    {"cx8", 1, 0, EDX, 8, NONE},
    {"cmov", 1, 0, EDX, 15, NONE},
    {"mmx", 1, 0, EDX, 23, NONE},
    {"fxsr", 1, 0, EDX, 24, NONE},
    {"sse", 1, 0, EDX, 25, NONE},
    {"sse2", 1, 0, EDX, 26, NONE},
    {"bmi", 7, 0, EBX, 3, NONE},
    {"avx2", 7, 0, EBX, 5, AVX_STATE},
    {"bmi2", 7, 0, EBX, 8, NONE},
    {"avx512f", 7, 0, EBX, 16, AVX512_STATE},
    {"avx512dq", 7, 0, EBX, 17, AVX512_STATE},
    {"adx", 7, 0, EBX, 19, NONE},
    {"avx512ifma", 7, 0, EBX, 21, AVX512_STATE},
    {"avx512cd", 7, 0, EBX, 28, AVX512_STATE},
    {"sha", 7, 0, EBX, 29, NONE},
    {"avx512bw", 7, 0, EBX, 30, AVX512_STATE},
    {"avx512vl", 7, 0, EBX, 31, AVX512_STATE},
    {"avx512vbmi", 7, 0, ECX, 1, AVX512_STATE},
    {"avx512vbmi2", 7, 0, ECX, 6, AVX512_STATE},
    {"gfni", 7, 0, ECX, 8, NONE},
    {"vaes", 7, 0, ECX, 9, AVX_STATE},
    {"vpclmulqdq", 7, 0, ECX, 10, AVX_STATE},
    {"avx512vnni", 7, 0, ECX, 11, AVX512_STATE},
    {"avx512bitalg", 7, 0, ECX, 12, AVX512_STATE},
    {"avx512vpopcntdq", 7, 0, ECX, 14, AVX512_STATE},
    {"movdiri", 7, 0, ECX, 27, NONE},
    {"movdir64b", 7, 0, ECX, 28, NONE},
    {"avx512vp2intersect", 7, 0, EDX, 8, AVX512_STATE},
    {"amx-bf16", 7, 0, EDX, 22, AMX_STATE},
    {"avx512fp16", 7, 0, EDX, 23, AVX512_STATE},
    {"amx-tile", 7, 0, EDX, 24, AMX_STATE},
    {"amx-int8", 7, 0, EDX, 25, AMX_STATE},
    {"sha512", 7, 1, EAX, 0, AVX_STATE},
    {"sm3", 7, 1, EAX, 1, AVX_STATE},
    {"sm4", 7, 1, EAX, 2, AVX_STATE},
    {"avxvnni", 7, 1, EAX, 4, AVX_STATE},
    {"avx512bf16", 7, 1, EAX, 5, AVX512_STATE},
    {"cmpccxadd", 7, 1, EAX, 7, NONE},
    {"amx-fp16", 7, 1, EAX, 21, AMX_STATE},
    {"avxifma", 7, 1, EAX, 23, AVX_STATE},
    {"avxvnniint8", 7, 1, EDX, 4, AVX_STATE},
    {"avxneconvert", 7, 1, EDX, 5, AVX_STATE},
    {"amx-complex", 7, 1, EDX, 8, AMX_STATE},
    {"avxvnniint16", 7, 1, EDX, 10, AVX_STATE},
    {"avx10.1", 7, 1, EDX, 19, AVX512_STATE},
    {"sahf", 0x80000001, 0, ECX, 0, NONE},
    {"lzcnt", 0x80000001, 0, ECX, 5, NONE},
    {"sse4a", 0x80000001, 0, ECX, 6, NONE},
    {"xop", 0x80000001, 0, ECX, 11, AVX_STATE},
    {"fma4", 0x80000001, 0, ECX, 16, AVX_STATE},
    {"tbm", 0x80000001, 0, ECX, 21, NONE},
    {"64bit", 0x80000001, 0, EDX, 29, NONE},
};

/* What LLVM reports but never generates on its own: system instructions, hints, transactions. */
static const char *const irrelevant[] = {
    "cldemote", "clflushopt", "clwb",   "clzero",   "enqcmd", "fsgsbase", "hreset",  "invpcid",  "kl",
    "lwp",      "mwaitx",     "pconfig", "pku",     "prefetchi", "prfchw", "ptwrite", "raoint",  "rdpid",
    "rdpru",    "rdrnd",      "rdseed", "rtm",      "serialize", "sgx",   "shstk",   "tsxldtrk", "uintr",
    "usermsr",  "waitpkg",    "wbnoinvd", "widekl", "xsave",  "xsavec",   "xsaveopt", "xsaves",
};

/* The register state that the system saves and restores; 0 without XSAVE. */
static uint32_t enabled_state(void) {
  uint32_t registers[4], low, high;
  if (!__get_cpuid(1, &registers[EAX], &registers[EBX], &registers[ECX], &registers[EDX]) ||
      !(registers[ECX] >> 27 & 1)) {
    return 0;
  }
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

/* 1 there, 0 missing, -1 unknown. */
static int has_feature(const char *name) {
  for (size_t i = 0; i < sizeof irrelevant / sizeof *irrelevant; i++) {
    if (strcmp(irrelevant[i], name) == 0) {
      return 1;
    }
  }
  for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
    const Feature *feature = features + i;
    uint32_t registers[4];
    if (strcmp(feature->name, name) == 0) {
      return __get_cpuid_count(feature->leaf, feature->subleaf, &registers[EAX], &registers[EBX], &registers[ECX],
                               &registers[EDX]) &&
             (registers[feature->reg] >> feature->bit & 1) && (enabled_state() & feature->state) == feature->state;
    }
  }
  return -1;
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

#define ARCHITECTURE "aarch64"

/* Linux, Documentation/arch/arm64/elf_hwcaps.rst. */
static const struct {
  const char *name;
  unsigned long entry; /* of the auxiliary vector */
  int bit;
} features[] = {
    {"fp-armv8", AT_HWCAP, 0},  {"neon", AT_HWCAP, 1},       {"aes", AT_HWCAP, 3},     {"sha2", AT_HWCAP, 6},
    {"crc", AT_HWCAP, 7},       {"lse", AT_HWCAP, 8},        {"fullfp16", AT_HWCAP, 10}, {"rdm", AT_HWCAP, 12},
    {"jsconv", AT_HWCAP, 13},   {"complxnum", AT_HWCAP, 14}, {"rcpc", AT_HWCAP, 15},   {"sha3", AT_HWCAP, 17},
    {"sm4", AT_HWCAP, 19},      {"dotprod", AT_HWCAP, 20},   {"sve", AT_HWCAP, 22},    {"fp16fml", AT_HWCAP, 23},
    {"sve2", AT_HWCAP2, 1},     {"i8mm", AT_HWCAP2, 13},     {"bf16", AT_HWCAP2, 14},
};

static int has_feature(const char *name) {
  for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
    if (strcmp(features[i].name, name) == 0) {
      return getauxval(features[i].entry) >> features[i].bit & 1;
    }
  }
  return 1; /* what is not in the table is no part of a vector kernel */
}

#elif defined(__riscv) && __riscv_xlen == 64
#define ARCHITECTURE "riscv64"

#include <sys/auxv.h>

/* Kernels are compiled for rv64gc, the least there is, or for that with the vectors of V. */
static int has_feature(const char *name) {
  return strcmp(name, "v") == 0 ? (int)(getauxval(AT_HWCAP) >> ('v' - 'a') & 1) : 1;
}

#else
#define ARCHITECTURE "unknown"

static int has_feature(const char *name) { return name ? -1 : 0; }
#endif

static int32_t check_features(const JsonValue *list, GraftError *error) {
  char missing[512] = "";
  for (size_t i = 0; i < graft_json_count(list); i++) {
    const char *name = graft_json_string(graft_json_item(list, i), NULL);
    int has = name ? has_feature(name) : -1;
    if (has != 1) {
      graft_append(missing, sizeof missing, "%s%s%s", *missing ? ", " : "", name ? name : "?",
                   has < 0 ? " (unknown to this runtime)" : "");
    }
  }
  if (!*missing) {
    return GRAFT_OK;
  }
  return graft_set_error(error, GRAFT_ERROR_ARTIFACT,
                         "the program was compiled for a processor with %s, which this one lacks; compile it again "
                         "for this processor",
                         missing);
}

int32_t graft_check_targets(const JsonValue *targets, GraftError *error) {
  if (targets && targets->kind != JSON_ARRAY) {
    return graft_set_error(error, GRAFT_ERROR_ARTIFACT, "damaged manifest: 'targets' is not an array");
  }
  for (size_t i = 0; i < graft_json_count(targets); i++) {
    const JsonValue *target = graft_json_item(targets, i);
    const char *architecture = graft_json_string(graft_json_member(target, "arch"), NULL);
    if (!architecture) {
      return graft_set_error(error, GRAFT_ERROR_ARTIFACT, "damaged manifest: target %zu has no 'arch'", i);
    }
    if (strcmp(architecture, ARCHITECTURE) != 0) {
      return graft_set_error(error, GRAFT_ERROR_ARTIFACT,
                             "the program was compiled for %s, and this machine is %s; compile it again for this "
                             "machine",
                             architecture, ARCHITECTURE);
    }
    GRAFT_TRY(check_features(graft_json_member(target, "features"), error));
  }
  return GRAFT_OK;
}
