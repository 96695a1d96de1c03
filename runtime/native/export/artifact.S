/* The artifact, in a section of its own that begins a page, so that its weights are used where the library is mapped;
 * and where it begins and ends. */
    .section .graft,"a",%progbits
    .balign 4096
graft_artifact_begin:
    .incbin "artifact.graft"
graft_artifact_end:
    .section .data.rel.ro,"aw",%progbits
    .balign 8
    .globl graft_artifact
    .hidden graft_artifact
graft_artifact:
    .8byte graft_artifact_begin
    .8byte graft_artifact_end
    .section .note.GNU-stack,"",%progbits
