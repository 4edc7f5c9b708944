package diskspace_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"trainyard/internal/diskspace"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

func TestUploadsStopBeforeSubmissions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()

	free, _, err := diskspace.Free(dir)
	if err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		name                 string
		reserve              *diskspace.Reserve
		uploads, submissions bool
	}{
		{"no reserve", nil, true, true},
		{"enough room", &diskspace.Reserve{Bytes: free / 100, Dirs: []string{dir}}, true, true},
		{"little room", &diskspace.Reserve{Bytes: free + free/4, Dirs: []string{dir}}, false, true},
		{"hardly any room", &diskspace.Reserve{Bytes: free * 3, Dirs: []string{"/proc/self", dir}}, false, false},
	} {
		for what, check := range map[string]struct {
			err  error
			good bool
		}{
			"uploads":     {test.reserve.Uploads(), test.uploads},
			"submissions": {test.reserve.Submissions(), test.submissions},
		} {
			var f *fault.Error
			switch {
			case check.good && check.err != nil:
				t.Errorf("%s: %s: %v", test.name, what, check.err)
			case !check.good && (!errors.As(check.err, &f) || f.Kind != fault.Unavailable || !diskspace.Full(f) ||
				!strings.HasPrefix(f.Message, "the server accepts no "+what+": the disk that holds ")):
				t.Errorf("%s: %s: %v", test.name, what, check.err)
			}
		}
	}
}

func TestHowMuchOfADiskIsKeptFree(t *testing.T) {
	t.Parallel()

	for _, test := range []struct{ reserve, disk, want job.Bytes }{
		{diskspace.AutoReserve, 2000, 100},
		{diskspace.AutoReserve, 1 << 40, 1 << 30},
		{500, 2000, 500},
		{0, 2000, 0},
	} {
		r := &diskspace.Reserve{Bytes: test.reserve}
		if got := r.Keep(test.disk); got != test.want {
			t.Errorf("with a reserve of %d, %d of %d bytes are kept free, want %d", test.reserve, got, test.disk, test.want)
		}
	}
}

func TestAnUploadEndsWhenTheRoomDoes(t *testing.T) {
	t.Parallel()
	reserve := &diskspace.Reserve{Dirs: []string{t.TempDir()}}
	in := reserve.Reader(strings.NewReader(strings.Repeat("x", 3<<20)))

	if _, err := io.CopyN(io.Discard, in, 1<<20); err != nil {
		t.Fatal(err)
	}

	reserve.Bytes = 1 << 60 // as if others had filled the disk
	n, err := io.Copy(io.Discard, in)

	if n > 1<<20 || !diskspace.Full(err) {
		t.Errorf("%d bytes more, then %v", n, err)
	}
}
