/* A driver without a GPU: the state of process PID is the content of the file $FAKECUDA/PID, and every call but GetState is
 * added to $FAKECUDA/calls. A process without a file does not use CUDA. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *state(int pid, const char *mode) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%d", getenv("FAKECUDA"), pid);
  return fopen(path, mode);
}

int cuCheckpointProcessGetState(int pid, int *found) {
  FILE *f = state(pid, "r");
  if (!f) return 3;
  int n = fscanf(f, "%d", found);
  fclose(f);
  return n == 1 ? 0 : 999;
}

static int move(const char *name, int pid, int from, int to) {
  int now, code = cuCheckpointProcessGetState(pid, &now);
  if (code) return code;
  char path[4096];
  snprintf(path, sizeof path, "%s/calls", getenv("FAKECUDA"));
  FILE *f = fopen(path, "a");
  fprintf(f, "%s %d\n", name, pid);
  fclose(f);
  if (now != from) return 401;
  const char *broken = getenv("FAKECUDA_BROKEN");
  if (broken && !strcmp(broken, name)) return 2;
  f = state(pid, "w");
  fprintf(f, "%d", to);
  fclose(f);
  return 0;
}

int cuCheckpointProcessLock(int pid, void *args) { return move("lock", pid, 0, 1); }
int cuCheckpointProcessCheckpoint(int pid, void *args) { return move("checkpoint", pid, 1, 2); }
int cuCheckpointProcessRestore(int pid, void *args) { return move("restore", pid, 2, 1); }
int cuCheckpointProcessUnlock(int pid, void *args) { return move("unlock", pid, 1, 0); }
