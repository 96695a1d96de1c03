/* What is said when a graph cannot be loaded or run. */
#include <stdio.h>

#include "module.h"

static const char *status_text(DnnlStatus status) {
  static const char *const TEXTS[] = {"success",       "out of memory", "invalid arguments", "unimplemented",
                                      "last reached",  "runtime error", "not required",      "invalid graph",
                                      "invalid graph", "invalid shape", "invalid data type"};
  bool known = status >= 0 && (size_t)status < sizeof TEXTS / sizeof TEXTS[0];
  return known ? TEXTS[status] : "unknown status";
}

int32_t onednn_fail(Binding *binding, int32_t node, const char *what, DnnlStatus status) {
  const Node *self = &binding->nodes[node];
  const char *because = status == DNNL_SUCCESS ? "" : status_text(status);
  snprintf(binding->error, sizeof binding->error, "region '%s', %s (node '%s'): %s%s%s%s", binding->module->graph.symbol,
           self->name, self->origin, what, *because ? ": oneDNN says '" : "", because, *because ? "'" : "");
  return GRAFT_ERROR_RUN;
}
