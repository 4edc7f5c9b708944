package process

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/executable"
)

func TestWhoIsToldToEnd(t *testing.T) {
	t.Parallel()
	const outside, script, training, worker, other, late, tool, tee, ping, pong = 1, 10, 20, 30, 31, 40, 50, 60, 70, 71
	shell := func(p Process) bool { return p.PID == script || p.PID == tool }
	reads := map[int]int{tee: training, ping: pong, pong: ping}
	hears := func(p Process, of []Process) bool {
		return slices.ContainsFunc(of, func(other Process) bool { return reads[p.PID] == other.PID })
	}
	proc := func(pid, parent int) Process { return Process{PID: pid, Parent: parent, Started: uint64(pid)} }

	type look struct {
		procs []Process
		all   bool
		want  []int
	}

	for _, test := range []struct {
		name  string
		looks []look
	}{
		{"a training, not its workers", []look{
			{[]Process{proc(script, outside), proc(training, script), proc(worker, training), proc(other, training)}, false,
				[]int{script, training}},
			{[]Process{proc(training, outside), proc(worker, training), proc(other, training)}, false, nil},
		}},
		{"nobody twice", []look{
			{[]Process{proc(script, outside), proc(training, script)}, false, []int{script, training}},
			{[]Process{proc(script, outside), proc(training, script)}, true, nil},
		}},
		{"whom a wrapper leaves behind", []look{
			{[]Process{proc(training, outside), proc(worker, training)}, false, []int{training}},
			{[]Process{proc(worker, outside)}, false, []int{worker}},
		}},
		{"all in the end", []look{
			{[]Process{proc(training, outside), proc(worker, training)}, false, []int{training}},
			{[]Process{proc(training, outside), proc(worker, training)}, true, []int{worker}},
		}},
		{"what a program's own shell started is the program's", []look{
			{[]Process{proc(training, outside), proc(tool, training), proc(worker, tool)}, false, []int{training}},
		}},
		{"what is started to save is let be", []look{
			{[]Process{proc(script, outside)}, false, []int{script}},
			{[]Process{proc(script, outside), proc(late, script)}, true, nil},
			{[]Process{proc(late, outside)}, true, nil},
		}},
		{"another that has the same number is another", []look{
			{[]Process{proc(training, outside)}, false, []int{training}},
			{[]Process{{PID: training, Parent: outside, Started: 99}}, true, nil},
		}},
		{"who reads what a training prints, when that is long gone", []look{
			{[]Process{proc(script, outside), proc(training, script), proc(tee, script)}, false, []int{script, training}},
			{[]Process{proc(training, outside), proc(tee, outside)}, true, nil},
			{[]Process{proc(tee, outside)}, false, nil}, // it has perhaps not read everything yet
			{[]Process{proc(tee, outside)}, true, []int{tee}},
		}},
		{"those who read from each other", []look{{[]Process{proc(ping, outside), proc(pong, outside)}, false, []int{ping, pong}}}},
		{"a circle", []look{{[]Process{proc(script, tool), proc(tool, script)}, false, []int{script, tool}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var s Stopping
			for i, l := range test.looks {
				var got []int
				for _, p := range s.Next(l.procs, Relations{shell, hears}, l.all) {
					got = append(got, p.PID)
				}

				if diff := cmp.Diff(l.want, got); diff != "" {
					t.Errorf("look %d: %s", i, diff)
				}
			}
		})
	}
}

func TestShells(t *testing.T) {
	t.Parallel()
	self, ok := Read(os.Getpid())
	if !ok || self.Shell() {
		t.Errorf("this test is a shell: %+v, %v", self, ok)
	}

	path := t.TempDir() + "/train.sh"
	if err := executable.Write(path, []byte("#!/bin/sh\necho ready\nread x\n"), 0o755); err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}

	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	if _, err := out.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}

	p, ok := Read(cmd.Process.Pid)
	if !ok || !p.Shell() {
		t.Errorf("a script is not known for a shell: %+v, %v", p, ok)
	}

	if err := in.Close(); err != nil {
		t.Error(err)
	}

	if err := cmd.Wait(); err == nil {
		t.Error("read of nothing succeeded")
	}

	if p.Shell() {
		t.Error("a process that is gone is a shell")
	}
}
