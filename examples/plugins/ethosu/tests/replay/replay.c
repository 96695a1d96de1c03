/* An NPU on the emulated board: the host at the other end of the serial line, where TOSA's reference model computes.
 *
 * A request is five words, little endian (a mark, then the bytes of name, commands, scratch memory, fast memory), and these
 * bytes; the answer is a word, 0 or an error, and the scratch memory as it is then.
 */
#include "board.h"
#include "ethosu_driver.h"
#include "graft/region.h"
#include "net_check.h"

#include <string.h>

static volatile uint32_t *const uart = (volatile uint32_t *)0x40004000; /* DATA, STATE, CTRL, INTSTATUS, BAUDDIV */
enum { DATA = 0, STATE = 1, CTRL = 2, BAUDDIV = 4, FULL = 1, FILLED = 2 };
struct ethosu_driver {
  int reserved;
};
static struct ethosu_driver only;

static void written(const void *data, size_t bytes) {
  for (const uint8_t *at = data; bytes > 0; --bytes) {
    while (uart[STATE] & FULL) {
    }
    uart[DATA] = *at++;
  }
}

static void read_from_host(void *data, size_t bytes) {
  for (uint8_t *at = data; bytes > 0; --bytes) {
    while (!(uart[STATE] & FILLED)) {
    }
    *at++ = (uint8_t)uart[DATA];
  }
}

struct ethosu_driver *ethosu_reserve_driver(void) {
  if (only.reserved) return NULL;
  only.reserved = 1;
  return &only;
}

void ethosu_release_driver(struct ethosu_driver *driver) { driver->reserved = 0; }

int ethosu_invoke_v3(struct ethosu_driver *driver, const void *commands, const int bytes, uint64_t *const addresses,
                     const size_t *sizes, const int count, void *user) {
  const GraftRegion *const region = user;
  void *const scratch = (void *)(uintptr_t)addresses[1];
  if (!driver->reserved || count != 3) return -1;
  const uint32_t head[] = {0x55504e, (uint32_t)strlen(region->name), (uint32_t)bytes, (uint32_t)sizes[1],
                           (uint32_t)sizes[2]};
  written(head, sizeof head);
  written(region->name, strlen(region->name));
  written(commands, (size_t)bytes);
  written(scratch, sizes[1]);
  uint32_t status;
  read_from_host(&status, sizeof status);
  if (status) return (int)status;
  read_from_host(scratch, sizes[1]);
  return 0;
}

int main(void) {
  uart[BAUDDIV] = 16;
  uart[CTRL] = 3; /* send and receive */
  const long wrong = net_check();
  board_exit(wrong < 0 ? (int)-wrong : wrong > 0 ? 99 : 0);
}
