package checkpoints

import (
	"encoding/json"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"trainyard/internal/agent/snapshot"
	"trainyard/internal/checkpoint"
)

const (
	// MarkerName is the name of the file that the SDK writes last into the directory of a checkpoint. Beside a
	// checkpoint that is a single file it is a suffix of that file's name.
	MarkerName = ".trainyard-checkpoint.json"

	markerSuffix = ".trainyard-checkpoint.json"

	maxMarker       = 16 << 20
	maxTrainerState = 64 << 20
	maxPointer      = 4 << 10 // of a file that names a checkpoint
)

// settle says for how long the files of a checkpoint must be unchanged before it counts as complete.
type settle int

const (
	settled settle = iota // something says that it is complete
	soon                  // it is, unless its writer is only a moment from the end: seen twice
	quiet                 // nothing says it but that nothing is written any more
	never                 // it is known to be incomplete
)

// unit is a checkpoint in the checkpoint directory: a directory or a file.
type unit struct {
	name      string
	found     checkpoint.Found
	settle    settle
	files     []file // its own
	beside    []file // which are not part of it, but restored with it: they name it or belong to all
	single    bool   // it is one file, which is replaced by renames: whichever is found is complete
	step      int64  // -1 if unknown
	metric    string
	value     *float64
	world     int
	sharded   bool
	framework string
}

// layout recognises directories that are checkpoints of one kind.
type layout struct {
	found checkpoint.Found
	match func(t *tree, dir string, u *unit) bool
}

// layouts are tried in this order.
var layouts = []layout{
	{checkpoint.BySnapshot, matchSnapshot},
	{checkpoint.ByMarker, matchMarker},
	{checkpoint.ByHuggingFace, matchHuggingFace},
	{checkpoint.ByDCP, matchDCP},
}

// recognise returns the checkpoints whose layout is known, complete or not.
func recognise(t *tree) []unit {
	var all []unit

	for _, dir := range sortedDirs(t) {
		if claimed(all, dir) {
			continue
		}

		for _, l := range layouts {
			u := unit{name: dir, found: l.found, files: t.below(dir), step: -1}
			if l.match(t, dir, &u) {
				all = append(all, u)
				break
			}
		}
	}

	for i := range t.files {
		f := &t.files[i]
		if claimed(all, f.path) {
			continue
		}
		if u, ok := matchFile(t, f); ok {
			all = append(all, u)
		}
	}

	return all
}

// sortedDirs lists the directories, each before those in it.
func sortedDirs(t *tree) []string {
	dirs := make([]string, 0, len(t.dirs))
	for d := range t.dirs {
		dirs = append(dirs, d)
	}

	slices.SortFunc(dirs, func(a, b string) int {
		if a == "." || b == "." {
			return strings.Compare(b, a) // "." is less than every other name that may stand here, but ".a" is not
		}

		return strings.Compare(a, b)
	})

	if i := slices.Index(dirs, "."); i > 0 {
		dirs = slices.Insert(slices.Delete(dirs, i, i+1), 0, ".")
	}

	return dirs
}

// claimed reports whether a path belongs to one of the units.
func claimed(units []unit, name string) bool {
	return slices.ContainsFunc(units, func(u unit) bool {
		return u.name == "." || u.name == name || strings.HasPrefix(name, u.name+"/")
	})
}

// marker is what the SDK says of a checkpoint that is complete.
type marker struct {
	Step      *int64           `json:"step"`
	Metric    string           `json:"metric"`
	Value     *float64         `json:"value"`
	World     int              `json:"world"`
	Sharded   bool             `json:"sharded"`
	Framework string           `json:"framework"`
	Files     map[string]int64 `json:"files"`
}

// readMarker reads a marker into a unit. It reports false if the marker cannot be read, as it may be that of another
// program, and makes the unit incomplete if files that it names are not there.
func readMarker(t *tree, name, dir string, u *unit) bool {
	text, err := t.read(name, maxMarker)
	if err != nil {
		return false
	}

	var m marker
	if json.Unmarshal(text, &m) != nil || len(m.Files) == 0 {
		return false
	}

	for p, size := range m.Files {
		f, ok := t.find(path.Join(dir, p))
		if !ok || f.link == "" && f.size != size {
			u.settle = never // it is being overwritten
		}
	}

	if m.Step != nil {
		u.step = *m.Step
	}

	u.metric, u.value, u.world, u.sharded, u.framework = m.Metric, m.Value, m.World, m.Sharded, m.Framework

	return true
}

// matchSnapshot recognises what a supervisor saved of a whole program. Such a directory is complete when it has its
// name. One that a program has made that runs as another user is none: what is restored from a snapshot has all rights.
func matchSnapshot(t *tree, dir string, u *unit) bool {
	f, ok := t.find(path.Join(dir, snapshot.Marker))
	u.framework = "criu"

	return ok && f.uid == os.Geteuid() && t.dirs[path.Join(dir, snapshot.ImagesDir)]
}

func matchMarker(t *tree, dir string, u *unit) bool {
	name := path.Join(dir, MarkerName)
	if _, ok := t.find(name); !ok {
		return false
	}

	return readMarker(t, name, dir, u)
}

var huggingFaceDir = regexp.MustCompile(`^checkpoint-([0-9]+)$`)

// matchHuggingFace recognises what the Trainer of Hugging Face writes: trainer_state.json comes last.
func matchHuggingFace(t *tree, dir string, u *unit) bool {
	number := huggingFaceDir.FindStringSubmatch(path.Base(dir))
	if number == nil {
		return false
	}

	u.framework, u.settle = "huggingface", soon
	u.step, _ = strconv.ParseInt(number[1], 10, 64) // digits alone, and -1 stays if there are too many

	if _, ok := t.find(path.Join(dir, "trainer_state.json")); ok {
		u.readTrainerState(t, path.Join(dir, "trainer_state.json"))
		return true
	}

	u.settle = never

	return slices.ContainsFunc(u.files, func(f file) bool {
		return slices.Contains([]string{"training_args.bin", "optimizer.pt", "scheduler.pt", "model.safetensors",
			"pytorch_model.bin", "adapter_model.safetensors"}, path.Base(f.path))
	})
}

// readTrainerState takes the step and the metric from the state of a Trainer. What cannot be read is left unknown.
func (u *unit) readTrainerState(t *tree, name string) {
	text, err := t.read(name, maxTrainerState)
	if err != nil {
		return
	}

	var state struct {
		Step    *int64           `json:"global_step"`
		History []map[string]any `json:"log_history"`
	}

	if json.Unmarshal(text, &state) != nil || state.Step == nil {
		return
	}

	u.step = *state.Step

	for _, entry := range slices.Backward(state.History) {
		step, _ := entry["step"].(float64)
		loss, ok := entry["eval_loss"].(float64)
		if ok && int64(step) == u.step {
			u.metric, u.value = "eval_loss", &loss
			return
		}
	}
}

// matchDCP recognises torch.distributed.checkpoint: the coordinator writes .metadata when all processes have written
// their shards. On the other nodes there are shards alone.
func matchDCP(t *tree, dir string, u *unit) bool {
	own := func(f file) bool { return path.Dir(f.path) == dir && strings.HasSuffix(f.path, ".distcp") }
	if !slices.ContainsFunc(u.files, own) {
		return false
	}

	u.framework, u.sharded = "torch.distributed.checkpoint", true
	u.step = stepOf(path.Base(dir))

	u.settle = never
	if _, ok := t.find(path.Join(dir, ".metadata")); ok {
		u.settle = soon
	}

	return true
}

var lightningFile = regexp.MustCompile(`(?:^|[-_.])(?:epoch|step)=[0-9]+.*\.ckpt$`)

var lightningStep = regexp.MustCompile(`step=([0-9]+)`)

// matchFile recognises checkpoints that are single files.
func matchFile(t *tree, f *file) (unit, bool) {
	u := unit{name: f.path, files: []file{*f}, step: -1}
	base := path.Base(f.path)

	if m, ok := t.find(f.path + markerSuffix); ok && f.link == "" {
		u.found = checkpoint.ByMarker
		u.files = append(u.files, *m)

		return u, readMarker(t, m.path, path.Dir(f.path), &u)
	}

	if f.link != "" || !lightningFile.MatchString(base) {
		return u, false
	}

	u.found, u.framework, u.settle = checkpoint.ByLightning, "lightning", soon
	if m := lightningStep.FindStringSubmatch(base); m != nil {
		u.step, _ = strconv.ParseInt(m[1], 10, 64) // digits alone
	}

	return u, true
}

var lastNumber = regexp.MustCompile(`([0-9]+)[^0-9]*$`)

// stepOf returns the last number in a name, -1 if there is none.
func stepOf(name string) int64 {
	m := lastNumber.FindStringSubmatch(name)
	if m == nil {
		return -1
	}

	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return -1
	}

	return n
}
