/* Entering a sandbox: the filter of system calls, and what notes those that it refuses (Linux). */
#include "sandbox.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/error.h"
#include "binding.h"

#if defined(__has_include)
#if __has_include(<linux/filter.h>) && __has_include(<linux/seccomp.h>)
#include <linux/filter.h>
#include <linux/seccomp.h>
#define HAS_SECCOMP 1
#endif
#endif

enum { MOST_CALLS = 512, LONGEST_NAME = 32 };

/* A handler of a signal has no argument to find its state by; it is set once, before the filter is. */
static char names[MOST_CALLS][LONGEST_NAME];
static atomic_int refused[MOST_CALLS]; /* how often, by number; those beyond count as the last */
static atomic_int last = -1;

#ifdef HAS_SECCOMP

static void write_text(const char *text) {
  ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
  (void)ignored;
}

/* Says once of each call that it is refused, and lets it fail. */
static void note_refusal(int signal_number, siginfo_t *info, void *state) {
  (void)signal_number;
  int error = errno, number = info->si_syscall;
  number = number >= 0 && number < MOST_CALLS ? number : MOST_CALLS - 1;
  atomic_store(&last, number);
  if (atomic_fetch_add(&refused[number], 1) == 0) {
    write_text("graft: the sandbox of a plugin refused the system call '");
    write_text(names[number][0] ? names[number] : "unknown");
    write_text("'\n");
  }
  ucontext_t *context = state;
#if defined(__x86_64__)
  context->uc_mcontext.gregs[REG_RAX] = -EPERM;
#elif defined(__aarch64__)
  context->uc_mcontext.regs[0] = (unsigned long long)-EPERM;
#else
  (void)context;
#endif
  errno = error;
}

static int take_names(PyObject *given) {
  PyObject *number, *name;
  Py_ssize_t position = 0;
  while (PyDict_Next(given, &position, &number, &name)) {
    long place = PyLong_AsLong(number);
    const char *text = PyUnicode_AsUTF8(name);
    if (!text || PyErr_Occurred()) {
      return -1;
    }
    if (place >= 0 && place < MOST_CALLS) {
      snprintf(names[place], sizeof names[place], "%s", text);
    }
  }
  return 0;
}

PyObject *graft_enter_sandbox(PyObject *module, PyObject *arguments) {
  (void)module;
  const char *code;
  Py_ssize_t size;
  PyObject *given;
  if (!PyArg_ParseTuple(arguments, "y#O!", &code, &size, &PyDict_Type, &given) || take_names(given) < 0) {
    return NULL;
  }
  struct sigaction action = {.sa_sigaction = note_refusal, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
  struct sock_fprog program = {(unsigned short)((size_t)size / sizeof(struct sock_filter)),
                               (struct sock_filter *)(uintptr_t)code};
  if (sigaction(SIGSYS, &action, NULL) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    return PyErr_SetFromErrno(PyExc_OSError);
  }
  Py_RETURN_NONE;
}

#else

PyObject *graft_enter_sandbox(PyObject *module, PyObject *arguments) {
  (void)module;
  (void)arguments;
  errno = ENOSYS;
  return PyErr_SetFromErrno(PyExc_OSError);
}

#endif

int32_t graft_refusals(void) {
  int32_t sum = 0;
  for (int i = 0; i < MOST_CALLS; i++) {
    sum += atomic_load(&refused[i]);
  }
  return sum;
}

void graft_append_refusal(char *text, size_t size) {
  int number = atomic_load(&last);
  if (number >= 0) {
    graft_append(text, size, "%sits sandbox refused the system call '%s'", text[0] ? "; " : "",
                 names[number][0] ? names[number] : "unknown");
  }
}

PyObject *graft_last_refusal(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  char text[128] = "";
  graft_append_refusal(text, sizeof text);
  atomic_store(&last, -1);
  return PyUnicode_FromString(text);
}
