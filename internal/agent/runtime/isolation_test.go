package runtime

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/cgroup"
	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

func TestAProgramRunsAsAUserOfItsOwn(t *testing.T) {
	t.Parallel()
	y := newYard(t, isolated(t))
	run := y.start(api.Launch{Owner: "ada", OwnerNumber: 7, LogLimit: 1 << 20, Command: `
echo "id $(id -u) $(id -g) $(id -G)"
echo "user $USER $LOGNAME"
grep -E '^(NoNewPrivs|Seccomp|CapInh|CapPrm|CapEff|CapBnd|CapAmb):' /proc/self/status | tr '\t' ' '
[ $(ls -d /proc/[0-9]* | wc -l) -lt 10 ] && echo "few processes"
echo "data $(ls $(dirname $(dirname $(dirname $PWD))) | tr '\n' ' ')"
echo "run $(ls $(dirname $PWD) | tr '\n' ' ')"
cat $(dirname $PWD)/launch.json 2>/dev/null && echo "launch.json can be read"
touch f $HOME/f /tmp/f /dev/shm/f $XDG_CACHE_HOME/f $TRAINYARD_CHECKPOINT_DIR/f && echo "folders can be written"
touch $TRAINYARD_RANK_DIR/f 2>/dev/null && echo "requests can be written"
echo said > /dev/stdout
kill -9 $PPID 2>/dev/null && echo "its parent can be killed"
unshare -Ur true 2>/dev/null && echo "namespaces can be made"
echo done
`})

	check(t, y.end(run), 0, "", "", false, "")

	const none = ": 0000000000000000\n"

	want := "id 310007 310007 310007\nuser ada ada\n" +
		"CapInh" + none + "CapPrm" + none + "CapEff" + none + "CapBnd" + none + "CapAmb" + none +
		"NoNewPrivs: 1\nSeccomp: 2\n" +
		"few processes\ndata caches checkpoints runs \nrun home report requests work \n" +
		"folders can be written\nsaid\ndone\n"
	if got := y.output(run)[logs.Stdout]; got != want {
		t.Errorf("output = %s\nwant %s\nerrors %s", got, want, y.output(run)[logs.Stderr])
	}
}

func TestUsersSeeNothingOfEachOther(t *testing.T) {
	t.Parallel()
	y := newYard(t, isolated(t))
	ready, hold := pipe(t), pipe(t)
	first := y.start(api.Launch{
		Owner: "ada", OwnerNumber: 1, Env: map[string]string{"READY": ready, "HOLD": hold},
		Command: "umask 0; echo secret | tee f $HOME/f /tmp/f /dev/shm/f $XDG_CACHE_HOME/f $TRAINYARD_CHECKPOINT_DIR/f; " +
			"echo $XDG_CACHE_HOME $TRAINYARD_CHECKPOINT_DIR > $READY; read x < $HOLD",
	})
	places := strings.Fields(receive(t, ready))
	places = append(places, filepath.Join(y.runDir(first), rundir.WorkDir), filepath.Join(y.runDir(first), rundir.HomeDir),
		"/tmp", "/dev/shm")

	st := y.await(first, job.RunRunning)
	run := y.start(api.Launch{
		Owner: "bob", OwnerNumber: 2, Command: "for p in $PLACES; do cat $p/f 2>/dev/null && echo $p; done; " +
			"kill -9 $OTHER 2>/dev/null && echo killed; kill -9 -1; echo unreachable",
		Env: map[string]string{
			"PLACES": strings.Join(places, " "),
			"OTHER":  strconv.Itoa(st.PID),
		},
	})

	y.end(run)

	if got := y.output(run)[logs.Stdout]; strings.TrimSuffix(got, "unreachable\n") != "" {
		t.Errorf("another user found %q", got)
	}

	release(t, hold)
	check(t, y.end(first), 0, "", "", false, "")
}

func TestOnlyTheSetUpWritesWhatIsCached(t *testing.T) {
	t.Parallel()
	y := newYard(t, isolated(t))
	l := api.Launch{
		Owner: "ada", OwnerNumber: 1, LogLimit: 1 << 20,
		Setup: "umask 077; echo tool > $TRAINYARD_SETUP_DIR/tool; mkdir bin; echo kept > bin/kept; echo set up",
		Command: "cat $TRAINYARD_SETUP_DIR/tool bin/kept; " +
			"{ echo bad > $TRAINYARD_SETUP_DIR/tool; chmod u+w $TRAINYARD_SETUP_DIR; } 2>/dev/null || true; " +
			"rm $TRAINYARD_SETUP_DIR/tool 2>/dev/null || true; " +
			"echo more >> bin/kept; cat $TRAINYARD_SETUP_DIR/tool",
	}

	for _, want := range []string{"set up\ntool\nkept\ntool\n", "tool\nkept\ntool\n"} {
		run := y.start(l)
		check(t, y.end(run), 0, "", "", false, "")

		if got := y.output(run)[logs.Stdout]; got != want {
			t.Errorf("output = %q, want %q; errors %q", got, want, y.output(run)[logs.Stderr])
		}
	}

	other := l
	other.Owner, other.OwnerNumber = "bob", 2
	run := y.start(other)
	check(t, y.end(run), 0, "", "", false, "")

	if got := y.output(run)[logs.Stdout]; !strings.HasPrefix(got, "set up\n") {
		t.Errorf("another user got the set-up: %q", got)
	}
}

func TestAProgramReportsAndIsAskedThroughItsFolders(t *testing.T) {
	t.Parallel()
	y := newYard(t, isolated(t))
	ready := pipe(t)
	run := y.start(api.Launch{
		Env: map[string]string{"READY": ready},
		Command: `echo '{"done": 0.5}' > $TRAINYARD_PROGRESS.tmp && mv $TRAINYARD_PROGRESS.tmp $TRAINYARD_PROGRESS
echo '{}' >> $TRAINYARD_METRICS_FILE
echo > $READY
while ! cat $TRAINYARD_RANK_DIR/save-request 2>/dev/null; do sleep 0.01; done`,
	})

	receive(t, ready)
	y.await(run, job.RunRunning)

	progress, err := y.ProgressFile(run, 0)
	if err != nil {
		t.Fatal(err)
	}

	sources, err := y.MetricSources(run, 0)
	if err != nil {
		t.Fatal(err)
	}

	for _, path := range []string{progress, sources.Metrics} {
		if text, err := os.ReadFile(path); err != nil || len(text) == 0 {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}

	if err := y.RequestSave(run, 0, 3); err != nil {
		t.Fatal(err)
	}

	check(t, y.end(run), 0, "", "", false, "")

	if got := y.output(run)[logs.Stdout]; got != "3" {
		t.Errorf("the program read %q", got)
	}
}

func TestAUserWithoutANumberIsRefused(t *testing.T) {
	t.Parallel()
	y := newYard(t, isolated(t))

	err := y.Start(t.Context(), y.spec(api.Launch{Owner: "ada", Command: "true"}))
	if err == nil || !strings.Contains(err.Error(), "does not say which number user ada has") {
		t.Errorf("the start failed with %v", err)
	}
}

func TestAKilledSupervisorTakesAnIsolatedProgramWithIt(t *testing.T) {
	t.Parallel()

	for _, agent := range []string{"there", "away"} {
		t.Run("with the agent "+agent, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, isolated(t))
			y.limits = cgroup.Place{} // only the namespace holds them together
			ready := pipe(t)
			run := y.start(api.Launch{
				Command: "(setsid env -i sleep 1000 > /dev/null 2>&1 &)\necho > $READY\nsleep 1000",
				Env:     map[string]string{"READY": ready},
			})

			receive(t, ready)
			y.await(run, job.RunRunning)
			y.awaitWatcher(run)

			supervisor, err := rundir.LockHolder(y.runDir(run))
			if err != nil || supervisor == 0 {
				t.Fatalf("supervisor = %d, %v", supervisor, err)
			}

			all, err := process.All()
			if err != nil {
				t.Fatal(err)
			}

			family := process.Descendants(all, map[int]bool{supervisor: true})
			if len(family) < 3 { // the first process of the namespaces, the shell and what it has left
				t.Fatalf("the program has these processes: %v", family)
			}

			if agent == "away" {
				if err := y.Close(); err != nil {
					t.Fatal(err)
				}
			}

			if err := unix.Kill(supervisor, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}

			if agent == "away" {
				awaitEnd(t, y.runDir(run)) // by the watcher
				y.open()
			}

			// The program cannot have done it, so it does not count against its retry.
			check(t, y.end(run), 0, "", job.CauseNodeLost, false, "all processes of the rank were ended")

			for _, p := range family {
				if now, ok := process.Read(p.PID); ok && !now.Dead && now.Started == p.Started {
					t.Errorf("process %d is left", p.PID)
				}
			}
		})
	}
}

func TestARunHasNoMoreProcessesThanItMay(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newYard(t, mode, func(o *Options) { o.MaxPIDs = 30 })
		if y.limits.PIDs == "" && !y.limits.V2 {
			lacking(t, "the controller of processes is not available")
		}

		// As the agent, the shell is moved into its cgroup right after the start.
		run := y.start(api.Launch{LogLimit: 1 << 20, Command: `while ! grep -q trainyard /proc/$$/cgroup; do :; done
for i in $(seq 100); do sleep 1000 & done 2>/dev/null
echo unreachable`})

		if s := y.end(run); s.ExitCode == 0 || strings.Contains(y.output(run)[logs.Stdout], "unreachable") {
			t.Errorf("it ended as %+v, output %q", s, y.output(run))
		}
	})
}

func TestARunUsesNoMoreDiskThanItMay(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, mode func(*Options)) {
		t.Helper()
		y := newYard(t, mode, func(o *Options) { o.MaxDisk = 8 << 20 })
		ready := pipe(t)
		run := y.start(api.Launch{
			Command: "head -c 16000000 /dev/zero > f; echo > $READY; sleep 1000", Env: map[string]string{"READY": ready},
		})

		receive(t, ready)
		check(t, y.end(run), 143, "SIGTERM", job.CauseDiskLimit, true, "of the disk and may use 8 MB on this node")
	})
}

func TestAnIsolatedProgramContinuesFromItsSnapshot(t *testing.T) {
	t.Parallel()
	y := newYard(t, withCRIU(t), isolated(t))
	first := y.spec(saveable())
	first.Launch.Command = strings.Replace(counting, "end $(", "end $(id -u) $(", 1)
	y.counted(first)

	if err := y.Stop(first.Run, 0, job.StopDump); err != nil {
		t.Fatal(err)
	}

	st := y.await(first.Run, job.RunEnded)
	if sandbox.MaySave() != nil { // the inventory says so, and a program that cannot be saved is terminated
		check(t, st, 9, "", job.CauseCancelled, true, "exited after SIGTERM")
		return
	}

	if !st.Signalled || !strings.Contains(st.Reason, "saved by a snapshot") {
		t.Fatalf("the run ended as %+v, log %q", st, y.text(first.Run))
	}

	second := first
	second.Epoch, second.Run = 2, id.NewRun(first.Job, 2)
	second.Launch.Restore = &job.Restore{Checkpoint: "j1-c1", Name: "snapshot-1", Snapshot: true}
	if err := y.Start(t.Context(), second); err != nil {
		t.Fatal(err)
	}

	y.await(second.Run, job.RunRunning)

	if err := os.WriteFile(filepath.Join(y.runDir(second.Run), rundir.WorkDir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if st := y.await(second.Run, job.RunEnded); st.ExitCode != 0 || st.Cause != job.CauseNone {
		t.Fatalf("the second run ended as %+v, log %q", st, y.text(second.Run))
	}

	const want = "end 310001 6 numbers snapshot-1  /run/trainyard/job/run/work"
	if text := y.text(second.Run); !strings.Contains(text, want) || strings.Contains(text, "count 3 of ") {
		t.Errorf("the log of the second run is %q, want %q in it", text, want)
	}
}

func TestAnImageThatAProgramHasMadeIsNotRestored(t *testing.T) {
	t.Parallel()
	y := newYard(t, withCRIU(t), isolated(t))
	first := y.spec(api.Launch{
		Command:  "cd $TRAINYARD_CHECKPOINT_DIR; mkdir -p snapshot-1/criu; echo '{}' > snapshot-1/snapshot.json",
		Snapshot: true,
	})
	if err := y.Start(t.Context(), first); err != nil {
		t.Fatal(err)
	}

	check(t, y.end(first.Run), 0, "", "", false, "")

	second := first
	second.Epoch, second.Run = 2, id.NewRun(first.Job, 2)
	second.Launch.Restore = &job.Restore{Checkpoint: "j1-c1", Name: "snapshot-1", Snapshot: true}
	if err := y.Start(t.Context(), second); err != nil {
		t.Fatal(err)
	}

	check(t, y.end(second.Run), 0, "", job.CauseRestoreFailed, false, "was not written by an agent")
}

// TestTheRestOfTheDataDirectoryIsCovered has a data directory outside of /tmp, whose modes hide nothing.
func TestTheRestOfTheDataDirectoryIsCovered(t *testing.T) {
	t.Parallel()
	mode := isolated(t)

	dir, err := os.MkdirTemp("/var", "trainyard-test-") //nolint:usetesting // a test directory is below /tmp
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.RemoveAll(dir) })

	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "key"), []byte("x"), 0o644)); err != nil {
		t.Fatal(err)
	}

	y := newYard(t, mode, func(o *Options) { o.Dir = dir })
	run := y.start(api.Launch{
		Command: "pwd; cat $DATA/key 2>/dev/null || true; ls $DATA | tr '\\n' ' '", Env: map[string]string{"DATA": dir},
	})
	check(t, y.end(run), 0, "", "", false, "")

	want := filepath.Join(y.runDir(run), rundir.WorkDir) + "\ncaches checkpoints runs "
	if got := y.output(run)[logs.Stdout]; got != want {
		t.Errorf("the program sees %q, want %q", got, want)
	}
}
