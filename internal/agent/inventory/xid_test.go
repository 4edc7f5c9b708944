package inventory

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"trainyard/test/fuzzing"
)

func TestXidsInTheKernelsLog(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, line string
		want       xid
		ok         bool
	}{
		{
			"with a process",
			"NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault",
			xid{bus: "0000:3b:00", code: 31, pid: 4711, program: "python3"},
			true,
		},
		{
			"without one",
			"NVRM: Xid (PCI:0000:3B:00): 79, GPU has fallen off the bus.",
			xid{bus: "0000:3b:00", code: 79},
			true,
		},
		{
			"of an unknown process",
			"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
			xid{bus: "0000:3b:00", code: 79},
			true,
		},
		{"of an old driver", "NVRM: Xid (0000:03:00): 13, 0001 00000000 0000902d", xid{bus: "0000:03:00", code: 13}, true},
		{
			"on a slice",
			"NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=12, name=a.out, Contained",
			xid{bus: "0000:01:00", code: 94, pid: 12, program: "a.out"},
			true,
		},
		{
			"recovery is over",
			"NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
			xid{bus: "0000:01:00", code: 154, settled: true},
			true,
		},
		{
			"recovery begins",
			"NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
			xid{bus: "0000:01:00", code: 154},
			true,
		},
		{"another line of the driver", "NVRM: GPU at PCI:0000:3b:00: GPU-1234", xid{}, false},
		{"a quotation", "somebody said NVRM: Xid (PCI:0000:3b:00): 79", xid{}, false},
		{"no address", "NVRM: Xid (PCI:): 79", xid{}, false},
		{"no number", "NVRM: Xid (PCI:0000:3b:00): x", xid{}, false},
	}

	for _, tt := range tests {
		got, ok := parseXid(tt.line)
		if ok != tt.ok || got != tt.want {
			t.Errorf("%s: %+v, %v", tt.name, got, ok)
		}
	}
}

func TestTheSameXidFromTwoSourcesIsOne(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	got := mergeXids([]xid{
		{at: at(25), uuid: "a", code: 31},
		{at: at(1), uuid: "a", code: 31, pid: 7, program: "x"},
		{at: at(2), uuid: "a", code: 31, pid: 8, program: "y"},
		{at: at(3), uuid: "b", code: 31},
		{at: at(4), uuid: "a", code: 13},
		{at: at(5), uuid: "b", code: 31, pid: 9, program: "z"},
		{at: at(90), uuid: "a", code: 13},
	})

	want := []xid{
		{at: at(1), uuid: "a", code: 31, pid: 7, program: "x"},
		{at: at(2), uuid: "a", code: 31, pid: 8, program: "y"},
		{at: at(3), uuid: "b", code: 31, pid: 9, program: "z"},
		{at: at(4), uuid: "a", code: 13},
		{at: at(90), uuid: "a", code: 13},
	}

	if diff := cmp.Diff(want, got, cmp.AllowUnexported(xid{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// writeFiles makes files below a folder.
func writeFiles(t *testing.T, root string, files map[string]string) {
	t.Helper()

	for name, text := range files {
		full := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKernelLogIsReadOnce(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	writeFiles(
		t,
		root,
		map[string]string{"dev/kmsg": "6,339,5140900,-;first\n SUBSYSTEM=pci\n4,340,6140900,-;second; with a semicolon\n" +
			"12,341,6140901,-;of a program\nnonsense\n" + "6,342,7000000,-," + strings.Repeat("x", 40000) + ";too long\n6,343,8000000,-;last\n6,344,9"},
	)

	log := &kernelLog{root: root, fd: -1}
	defer func() {
		if err := log.close(); err != nil {
			t.Error(err)
		}
	}()

	got, err := log.since(339)
	if err != nil {
		t.Fatal(err)
	}

	want := []kernelMessage{{340, 6140900 * time.Microsecond, "second; with a semicolon"}, {343, 8 * time.Second, "last"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(kernelMessage{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	if again, err := log.since(339); err != nil || len(again) != 0 {
		t.Errorf("read again: %+v, %v", again, err)
	}
}

func TestKernelLogThatIsNotThere(t *testing.T) {
	t.Parallel()
	log := &kernelLog{root: t.TempDir(), fd: -1}
	if got, err := log.since(0); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}

	if err := log.close(); err != nil {
		t.Error(err)
	}
}

func FuzzKernelLog(f *testing.F) {
	f.Add("4,340,6140900,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, Ch 00000008\n")
	f.Add(
		"4,18446744073709551615,9223372036854775807,-;NVRM: Xid (PCI:ffffffff:ff:ff GPU-I:1): 99999, pid='1', name=<unknown>\n SUBSYSTEM=pci\n",
	)
	f.Add("12,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79\n")
	f.Add(";;;\n,,,;\n")
	f.Add(fuzzing.Long("12,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79\n"))

	f.Fuzz(func(t *testing.T, text string) {
		defer fuzzing.Bounded(t)()

		log := &kernelLog{fd: -1}
		for _, msg := range log.split(text, 0) {
			if msg.seq == 0 || msg.at < 0 || strings.Contains(msg.text, "\n") {
				t.Errorf("message %+v", msg)
			}

			x, ok := parseXid(msg.text)
			if !ok {
				continue
			}

			if busName(x.bus) != x.bus || x.pid < 0 || x.code < 0 || len(x.program) > maxWord ||
				!utf8.ValidString(x.evidence()) {
				t.Errorf("%q is %+v", msg.text, x)
			}
		}
	})
}

func TestBusNames(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"00000000:3B:00.0": "0000:3b:00", "0000:3b:00": "0000:3b:00", "00010000:0A:1f.0": "10000:0a:1f", "": "", "3b:00": "", "x:y:z": "",
	} {
		if got := busName(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}
