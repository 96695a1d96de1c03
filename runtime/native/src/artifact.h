/* An artifact, opened: verified, mapped, its parts ready for graft_program_create. */
#ifndef GRAFT_ARTIFACT_H
#define GRAFT_ARTIFACT_H

#include "graft/runtime.h"
#include "program.h"
#include "zip.h"

#define GRAFT_FORMAT_VERSION 1

typedef struct GraftArtifact GraftArtifact;

/* Maps the file, checks its structure and the SHA-256 of every member. The artifact is independent of its file's name
 * and stays valid until closed; a file that another process shortens meanwhile is outside this promise. */
int32_t graft_artifact_open(const char *path, GraftArtifact **artifact, GraftError *error);
void graft_artifact_close(GraftArtifact *artifact);

/* The parts of the program; they point into the mapping. */
const GraftProgramSource *graft_artifact_source(const GraftArtifact *artifact);

/* All members, for tools. */
const ZipArchive *graft_artifact_members(const GraftArtifact *artifact);

#endif
