package staging_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/agent/staging"
	"trainyard/internal/diskspace"
	"trainyard/internal/diskspace/smalldisk"
	"trainyard/internal/job"
)

// ticking is a clock that goes on by a second each time it is read.
type ticking struct{ at *time.Time }

func (c ticking) Now() time.Time {
	*c.at = c.at.Add(time.Second)
	return *c.at
}

func kept(c *staging.Cache) []string {
	names := []string{}
	for _, d := range c.Copies() {
		names = append(names, d.Name)
	}

	return names
}

func TestWhatWasUsedLongestAgoMakesRoom(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(*staging.Options){
		"on the disk":      func(o *staging.Options) { o.Free = disk{3_400_000}.free }, // of which 170,000 are left to others
		"within the limit": func(o *staging.Options) { o.Limit = 3_200_000 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, whole(content(1_000_000), "v1"))
			opt := options(t)
			at := modified
			opt.Clock = ticking{&at}
			change(&opt)
			c := open(t, opt)
			ref := func(name string) job.DataRef { return job.DataRef{Name: name, Source: s.URL + "/" + name} }

			drop := func(ranks ...string) {
				for _, r := range ranks {
					if err := c.Drop(r); err != nil {
						t.Fatal(err)
					}
				}
			}

			stage(t, c, "j1", ref("a"))
			stage(t, c, "j2", ref("b"))
			stage(t, c, "j3", ref("c"))

			_, err := c.Stage(t.Context(), "j4", []job.DataRef{ref("d")})
			if err == nil || !strings.Contains(err.Error(), "all cached datasets are in use") {
				t.Fatalf("with all in use: %v", err)
			}

			drop("j2", "j1") // b was used until before a was
			stage(t, c, "j4", ref("d"))

			if diff := cmp.Diff([]string{"a", "c", "d"}, kept(c)); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}

			stage(t, c, "j5", ref("a"))
			drop("j3")
			stage(t, c, "j6", ref("e"))

			if diff := cmp.Diff([]string{"a", "d", "e"}, kept(c)); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}

			c.Close()

			next := open(t, opt)
			if diff := cmp.Diff([]string{"a", "d", "e"}, kept(next)); diff != "" {
				t.Errorf("kept by the next agent (-want +got):\n%s", diff)
			}

			if _, err := next.Stage(t.Context(), "j7", []job.DataRef{ref("f")}); err == nil {
				t.Error("the next agent removed what runs use")
			}

			if err := next.KeepOnly(func(rank string) bool { return rank != "j4" }); err != nil {
				t.Fatal(err)
			}

			stage(t, next, "j7", ref("f"))

			if diff := cmp.Diff([]string{"a", "e", "f"}, kept(next)); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPartThatNobodyWantsMakesRoomFirst(t *testing.T) {
	t.Parallel()
	data := content(1_000_000)
	broken := serve(t, turns(cut(900_000, whole(data, "v1")), status(404)))
	s := serve(t, whole(data, "v1"))
	opt := options(t)
	opt.Free = disk{2_400_000}.free
	c := open(t, opt)
	stage(t, c, "j1", job.DataRef{Name: "a", Source: s.URL})

	if err := c.Drop("j1"); err != nil {
		t.Fatal(err)
	}

	if _, err := c.Stage(t.Context(), "j2", []job.DataRef{{Name: "b", Source: broken.URL}}); err == nil {
		t.Fatal("it was staged")
	}

	stage(t, c, "j3", job.DataRef{Name: "c", Source: s.URL})

	if diff := cmp.Diff([]string{"a", "c"}, kept(c)); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

func TestDataThatCannotFitIsRefusedBeforeItIsFetched(t *testing.T) {
	t.Parallel()
	s := serve(t, whole(content(5_000_000), "v1"))
	opt := options(t)
	opt.Free = disk{4_000_000}.free
	c := open(t, opt)
	_, err := c.Stage(t.Context(), "j1", []job.DataRef{{Name: "mri", Source: s.URL}})
	if err == nil || !strings.Contains(err.Error(), "4.8MB needed, 3.8MB free on disk") {
		t.Errorf("told %v", err)
	}

	if free, _, err := opt.Free(opt.Dir); err != nil || free < 3_999_000 {
		t.Errorf("%s are free (%v): something was written", free, err)
	}
}

func TestWhatMustNotBeHereGoesWhenNobodyUsesIt(t *testing.T) {
	t.Parallel()
	s := serve(t, whole(content(1000), "v1"))
	opt := options(t)
	c := open(t, opt)
	path := stage(t, c, "j1", job.DataRef{Name: "mri", Source: s.URL})["TRAINYARD_DATA_MRI"]
	c.Remove("mri", s.URL)
	has(t, path, content(1000))

	if err := c.Drop("j1"); err != nil {
		t.Fatal(err)
	}

	c.Remove("mri", "http://another.example.org")
	c.Remove("mri", s.URL)

	if list := kept(c); len(list) > 0 {
		t.Errorf("kept %v", list)
	}

	c.Close()

	list, err := os.ReadDir(opt.Dir)
	if err != nil || len(list) != 2 {
		t.Errorf("left on the disk: %v (%v), want .holds and .views", list, err)
	}

	stage(t, open(t, opt), "j2", job.DataRef{Name: "mri", Source: s.URL})

	if asked := s.asked(); len(asked) != 2 {
		t.Errorf("the source was asked %d times, want 2", len(asked))
	}
}

func TestDroppedRanksLeaveNoTrace(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	opt := options(t)
	c := open(t, opt)
	for i := range 3 {
		stage(t, c, fmt.Sprintf("j%d", i), job.DataRef{Name: "mri", Source: root})
	}

	for i := range 3 {
		if i == 2 {
			if list, err := os.ReadDir(filepath.Join(opt.Dir, ".views")); err != nil || len(list) != 1 {
				t.Errorf("a run that goes on sees %v (%v)", list, err)
			}
		}

		if err := c.Drop(fmt.Sprintf("j%d", i)); err != nil {
			t.Fatal(err)
		}
	}

	for _, dir := range []string{".holds", ".views"} {
		if list, err := os.ReadDir(filepath.Join(opt.Dir, dir)); err != nil || len(list) > 0 {
			t.Errorf("%s has %v (%v)", dir, list, err)
		}
	}
}

// Others may fill the disk between the reservation and the write.
func TestADiskThatFillsUpEndsAFetchWithItsCauseAndKeepsNothing(t *testing.T) {
	t.Parallel()
	dir := smalldisk.Mount(t, 1)
	s := serve(t, whole(content(2_000_000), "v1"))
	source := filepath.Join(t.TempDir(), "d")
	write(t, source, content(2_000_000))
	opt := options(t)
	opt.Dir = filepath.Join(dir, "datasets")
	opt.Free = func(string) (free, total job.Bytes, err error) { return 1 << 30, 1 << 30, nil }
	c := open(t, opt)

	for _, from := range []string{s.URL + "/d", "file://" + source} {
		_, err := c.Stage(t.Context(), "j1", []job.DataRef{{Name: "d", Source: from}})
		if err == nil || !strings.Contains(err.Error(), "cannot stage dataset d on this node") ||
			!strings.Contains(err.Error(), "no space left on") {
			t.Errorf("staged from %s: %v", from, err)
		}

		if free, _, err := diskspace.Free(dir); err != nil || free < 900_000 {
			t.Errorf("%d bytes are free afterwards, %v", free, err)
		}
	}
}
