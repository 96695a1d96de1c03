/* What is said when a graph cannot be loaded or run. */
#include "module.h"

static const char *status_text(DnnlStatus status) {
  static const char *const TEXTS[] = {"success",       "out of memory", "invalid arguments", "unimplemented",
                                      "last reached",  "runtime error", "not required",      "invalid graph",
                                      "invalid graph", "invalid shape", "invalid data type"};
  bool known = status >= 0 && (size_t)status < sizeof TEXTS / sizeof TEXTS[0];
  return known ? TEXTS[status] : "unknown status";
}

int32_t onednn_fail(Module *module, int32_t node, const char *what, DnnlStatus status) {
  const char *region = module->graph.symbol;
  const char *name = module->graph.nodes[node].name;
  const char *origin = module->graph.nodes[node].origin;
  if (status == DNNL_SUCCESS) {
    return module->host->fail(module->host, "region '%s', %s (node '%s'): %s", region, name, origin, what);
  }
  return module->host->fail(module->host, "region '%s', %s (node '%s'): %s: oneDNN says '%s'", region, name, origin,
                            what, status_text(status));
}
