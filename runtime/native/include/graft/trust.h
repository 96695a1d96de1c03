/* Loading an artifact that comes from somebody else: signed ones only, or none with machine code.
 *
 * The runtime verifies no signature by itself: the function that does is the caller's, from a library that is kept well.
 */
#ifndef GRAFT_TRUST_H
#define GRAFT_TRUST_H

#include "graft/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an artifact may do that is loaded. */
typedef enum {
  GRAFT_NATIVE_RUN = 0,    /* its machine code is run, as that of a shared library */
  GRAFT_NATIVE_SIGNED = 1, /* if a trusted key has signed it */
  GRAFT_NATIVE_REFUSE = 2  /* it must hold none */
} GraftNative;

/* The hexadecimal digits that name a key: the first of the SHA-256 of its bytes. */
#define GRAFT_KEY_DIGITS 32

typedef struct GraftTrust {
  uint32_t size;  /* sizeof(GraftTrust) */
  int32_t native; /* GraftNative */
  /* The trusted Ed25519 public keys. Those that are revoked, or not valid now, are left out by who makes the list. */
  const uint8_t (*keys)[32];
  size_t key_count;
  /* Whether a signature of 64 bytes is right; that of a library for cryptography, such as libsodium's:
   * return crypto_sign_verify_detached(signature, message, size, key) == 0. */
  int32_t (*verify)(void *user, const uint8_t *signature, const uint8_t *message, size_t size, const uint8_t *key);
  void *user;
  /* Kinds whose modules hold no machine code: GRAFT_NATIVE_REFUSE takes all others for some. */
  const char *const *data_kinds;
  size_t data_kind_count;
} GraftTrust;

/* graft_program_load_on, for an artifact whose origin is not known; `trust` NULL is GRAFT_NATIVE_RUN. The file of a signed
 * one is read to memory of the process, so that what was checked is what runs. */
int32_t graft_program_load_trusted(const char *path, const GraftTrust *trust, const GraftLoadOptions *options,
                                   const GraftDevice *const *devices, size_t device_count, GraftProgram **program,
                                   GraftError *error);

#ifdef __cplusplus
}
#endif
#endif
