/* Finding an artifact inside a shared library: the section `.graft` of an ELF file (System V ABI, chapter 4). */
#ifndef GRAFT_ELF_H
#define GRAFT_ELF_H

#include <stddef.h>
#include <stdint.h>

#include "graft/runtime.h"

/* Whether a file begins as an ELF file does. */
int graft_is_elf(const uint8_t *bytes, size_t size);

/* Gives the bytes of the section; they lie inside the file, whatever its headers say. */
int32_t graft_elf_artifact(const uint8_t *bytes, size_t size, const uint8_t **section, size_t *section_size,
                           GraftError *error);

#endif
