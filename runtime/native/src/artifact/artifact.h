/* An artifact, opened: verified, mapped, its parts ready for graft_program_create. */
#ifndef GRAFT_ARTIFACT_H
#define GRAFT_ARTIFACT_H

#include "artifact/zip.h"
#include "graft/runtime.h"
#include "program/program.h"

#define GRAFT_FORMAT_VERSION 4

typedef struct GraftArtifact GraftArtifact;

/* Who says whether an artifact may be used: GRAFT_OK, or a code and a text. `message` is what a signature signs,
 * `signatures` the artifact's, NULL where it has none. */
typedef struct ArtifactTrust {
  int32_t (*accept)(void *user, const char *message, const uint8_t *signatures, size_t size, GraftError *error);
  void *user;
} ArtifactTrust;

/* Maps the file, checks its structure and the SHA-256 of every member; of constants that are named by their content only
 * the header, so that their bytes need not be read yet: graft_artifact_check does it, which every program calls before
 * anything sees a constant. The artifact is independent of its file's name and stays valid until closed; a file that
 * another process shortens meanwhile is outside this promise. The allocator is copied; NULL: the heap.
 *
 * With `trust` (which may be NULL) the file is copied to memory of this process first, nothing but the manifest is read
 * before it is accepted, and then the SHA-256 of all members is checked at once. What is signed is the manifest; of a
 * shared library the file, whose signatures are in `path`.sig. */
int32_t graft_artifact_open(const char *path, const ArtifactTrust *trust, const GraftAllocator *allocator,
                            GraftArtifact **artifact, GraftError *error);

/* The same for the bytes of a file, which stay where they are until the artifact is closed. */
int32_t graft_artifact_open_memory(const void *bytes, size_t size, const GraftAllocator *allocator,
                                   GraftArtifact **artifact, GraftError *error);

void graft_artifact_close(GraftArtifact *artifact);

/* Checks the bytes of the constants if that was not done yet, in the threads of the context (NULL: in this one). */
int32_t graft_artifact_check(GraftArtifact *artifact, GraftContext *context, GraftError *error);

/* The parts of the program; they point into the mapping. */
const GraftProgramSource *graft_artifact_source(const GraftArtifact *artifact);

/* All members, for tools. */
const ZipArchive *graft_artifact_members(const GraftArtifact *artifact);

#endif
