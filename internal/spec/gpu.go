package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/job"
	"trainyard/internal/yamlfile"
)

const maxGPUMemory = job.Bytes(4 << 40)

// gpuKind reads GPU models: A100, A100:80GB, A100:80GB:8, or a list of them.
// As people know it from other tools, 24GB..:2 alone is a memory and a count.
func gpuKind() kind {
	return kind{
		words: "a GPU model or a list of models",
		schema: func() schema {
			return oneOrMany(schema{"type": "string", "pattern": `^[A-Za-z0-9.][A-Za-z0-9 ._/+-]*(:[0-9][0-9A-Za-z.+]*){0,2}$`})
		},
		read: readGPUs,
		write: func(s *job.Spec) (*yaml.Node, error) {
			var kinds []string
			for _, k := range s.Resources.GPU {
				kinds = append(kinds, k.String())
			}

			return textsNode(kinds)
		},
	}
}

func readGPUs(v value) {
	items := v.items()
	for _, i := range items {
		s, ok := i.line()
		if !ok {
			continue
		}

		g, problem, remedy := parseGPU(s)
		if problem != "" {
			i.bad(problem, remedy)
			continue
		}

		res := &v.d.entry.Spec.Resources
		switch {
		case g.memory && len(items) > 1:
			i.bad(
				"must be a GPU model, got the memory "+yamlfile.Quote(s)+" beside other entries",
				"write it as gpu_memory, which applies to all of them",
			)
		case g.memory:
			v.d.gpuMemory, res.GPUMemory = true, g.atLeast
		case slices.Contains(res.GPU, g.kind):
			i.bad("must be listed once, got "+yamlfile.Quote(g.kind.String())+" twice", "remove one of them")
		default:
			res.GPU = append(res.GPU, g.kind)
		}

		if g.count != nil && v.d.gpuCount != nil && *g.count != *v.d.gpuCount {
			i.fail("conflict", fmt.Sprintf("must ask for %s GPUs like the entry before it, got %s", v.d.gpuCount, g.count),
				"write the number once, in gpus")
		} else if g.count != nil {
			v.d.gpuCount = g.count
		}
	}
}

// gpu is one entry of resources.gpu: a kind or a memory, and perhaps a count.
type gpu struct {
	kind    job.GPUKind
	memory  bool
	atLeast job.ByteRange
	count   *job.Range
}

// parseGPU reads one entry, and returns what is wrong with it and what to do.
func parseGPU(s string) (g gpu, problem, remedy string) {
	const constraint = "must be a GPU model such as A100, A100:80GB or A100:80GB:8"
	const howto = "write the model first, then its memory and the number of GPUs"
	parts := strings.Split(s, ":")
	first := strings.TrimSpace(parts[0])
	if startsWithDigit(first) {
		r, err := job.ParseByteRange(first)
		if err != nil {
			return g, constraint + got(s), "write a memory as in 24GB.., or gpus: 8 for a number of GPUs"
		}
		if problem := badGPUMemory(r); problem != "" {
			return g, "must be " + problem + got(s), "write it as in 24GB.. or 24GB..80GB"
		}

		g.memory, g.atLeast = true, r
	} else if !modelName(first) {
		return g, constraint + got(s), howto
	}

	g.kind.Model = first

	for _, part := range parts[1:] {
		part = strings.TrimSpace(part)
		count, err := job.ParseRange(part)
		if err == nil && g.count == nil {
			if count.Min < 1 || count.Min > maxGPUs || count.Max > maxGPUs {
				return g, fmt.Sprintf("must ask for 1 to %d GPUs, got %s in %s", maxGPUs, count, yamlfile.Quote(s)),
					"write a memory with its unit, as in A100:80GB, or another number of GPUs"
			}

			g.count = &count

			continue
		}

		memory, err := job.ParseBytes(part)
		if err != nil || g.memory || g.kind.Memory != 0 || g.count != nil || memory < minMemory || memory > maxGPUMemory {
			return g, constraint + got(s), howto
		}

		g.kind.Memory = memory
	}

	return g, "", ""
}

func startsWithDigit(s string) bool {
	return s != "" && (s[0] >= '0' && s[0] <= '9' || s[0] == '.')
}

// modelName reports whether s can name a GPU model: letters, digits and what stands between them in the vendors' names.
func modelName(s string) bool {
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || (c < '0' || c > '9') && !strings.ContainsRune(" ._-/", rune(c))) {
			return false
		}
	}

	return s != ""
}

func gpuMemoryKind() kind {
	return unitKind(
		"an amount of memory or a range of amounts",
		"24GB, 24GB.. or 24GB..80GB (a range goes up)",
		`^[0-9.]*[0-9kKmMgGtTiIbB. ]*\+?$`,
		func(s *job.Spec) *job.ByteRange { return &s.Resources.GPUMemory },
		job.ParseByteRange,
		badGPUMemory,
	)
}

func badGPUMemory(r job.ByteRange) string {
	if max(r.Min, r.Max) < minMemory || max(r.Min, r.Max) > maxGPUMemory {
		return "a GPU memory between " + minMemory.String() + " and " + maxGPUMemory.String()
	}

	return ""
}

// resources checks that the fields about GPUs agree, and fills in how many.
func (r *reader) resources(d *draft) {
	res := &d.entry.Spec.Resources
	gpus, given := d.at["resources.gpus"]
	if given {
		if _, err := job.ParseRange(gpus.Value); err != nil {
			return // reported when it was read
		}
	}

	if n, both := d.at["resources.gpu_memory"]; both && d.gpuMemory {
		r.Fail(n, "conflict", "resources.gpu_memory", "must be given once, got a memory in gpu as well", "remove one of them")
	}

	if d.gpuCount != nil {
		if given && res.GPUs != *d.gpuCount {
			r.Fail(
				gpus,
				"conflict",
				"resources.gpus",
				fmt.Sprintf("must be the number in gpu, %s, got %s", d.gpuCount, res.GPUs),
				"write the number once",
			)
		}

		res.GPUs = *d.gpuCount

		return
	}

	if len(res.GPU) == 0 && res.GPUMemory == (job.ByteRange{}) && res.GPUShare == 0 {
		return
	}

	switch {
	case !given:
		res.GPUs = job.Range{Min: 1, Max: 1}
	case res.GPUs == job.Range{}:
		r.Fail(
			gpus,
			"conflict",
			"resources.gpus",
			"must be at least 1 because other fields describe the GPU, got 0",
			"ask for at least 1, or remove the other fields",
		)
	}
}

// shareFields say which part of one GPU is enough.
func shareFields() []field {
	return []field{
		{
			name:    "gpu_share",
			kind:    shareKind(func(s *job.Spec) *float64 { return &s.Resources.GPUShare }, 0.01, 1),
			example: "0.5",
			also:    []string{"gpu_fraction", "fraction"},
			doc: "The share of one GPU that the job gets; others may have the rest. While they leave theirs unused, it " +
				"gets more. The job runs on nodes that divide their GPUs, which trainyard nodes NODE shows, and on such " +
				"nodes that are provisioned. Under policies other than rules and andreas it gets a whole GPU.",
		},
		{
			name: "share_class",
			kind: choiceKind(func(s *job.Spec) *job.ShareClass { return &s.Resources.ShareClass },
				job.ShareNormal, job.ShareGuaranteed, job.ShareOpportunistic),
			example: "guaranteed",
			def:     "normal, with gpu_share",
			doc: "How a job with gpu_share is served beside others: a guaranteed one first until it has had its share, an " +
				"opportunistic one with what the others leave. Beside normal jobs a guaranteed one needs a share_limit.",
		},
		{
			name:    "share_limit",
			kind:    shareKind(func(s *job.Spec) *float64 { return &s.Resources.ShareLimit }, 0.01, 1),
			example: "0.8",
			def:     "1, with gpu_share",
			doc:     "The most of its GPU that a job with gpu_share gets, also while nobody else wants it.",
		},
		{
			name:    "share_mps",
			kind:    flagKind(func(s *job.Spec) *bool { return &s.Resources.ShareMPS }),
			example: "true",
			def:     "false",
			doc: "A job with gpu_share shares its GPU through NVIDIA MPS, with jobs of the same owner that do so too: their " +
				"kernels run at the same time, and a fault of one ends all of them. The share, or share_limit, is the part of " +
				"the GPU's threads that it gets at most. The job runs on nodes that have MPS, which trainyard nodes NODE shows.",
		},
	}
}

// share refuses what does not go with a part of one GPU, and what means nothing without one.
func (r *reader) share(d *draft) {
	res := &d.entry.Spec.Resources

	for _, name := range []string{"share_class", "share_limit", "share_mps"} {
		n, given := d.at["resources."+name]

		switch _, asked := d.at["resources.gpu_share"]; {
		case given && !asked:
			r.Fail(n, "conflict", "resources."+name, "must not be given without gpu_share", "remove it, or add gpu_share")
		case given && res.GPUShare == 1:
			r.Fail(n, "conflict", "resources."+name, "must not be given with gpu_share: 1, which is a whole GPU",
				"remove it, or ask for a smaller gpu_share")
		}
	}

	if res.GPUShare == 0 || res.GPUShare == 1 {
		return
	}

	one := job.Range{Min: 1, Max: 1}
	if res.GPUs != one && res.GPUs != (job.Range{}) {
		r.Fail(d.at["resources.gpu_share"], "conflict", "resources.gpu_share",
			fmt.Sprintf("must not be given to a job with several GPUs, got gpus: %s", res.GPUs),
			"remove it, or ask for one GPU: jobs with several do not share them")
	}

	if res.Nodes != one && res.Nodes != (job.Range{}) {
		r.Fail(d.at["resources.gpu_share"], "conflict", "resources.gpu_share",
			fmt.Sprintf("must not be given to a job on several nodes, got nodes: %s", res.Nodes),
			"remove it, or ask for one node: jobs on several do not share GPUs")
	}

	if res.ShareLimit > 0 && res.ShareLimit < res.GPUShare {
		r.Fail(d.at["resources.share_limit"], "conflict", "resources.share_limit",
			fmt.Sprintf("must be at least gpu_share, %v, got %v", res.GPUShare, res.ShareLimit), "raise it, or lower gpu_share")
	}

	if res.ShareMPS {
		r.mps(d)
	}

	if res.GPUMemory.Max > 0 {
		r.Fail(cmp.Or(d.at["resources.gpu_memory"], d.at["resources.gpu"]), "conflict", "resources.gpu_memory",
			fmt.Sprintf("must be one amount with gpu_share, got %s", res.GPUMemory),
			"write how much of the memory of its GPU the job may have, as in gpu_memory: 10GB")
	}
}

// mps refuses what a job that uses its GPU through MPS cannot have.
func (r *reader) mps(d *draft) {
	s := &d.entry.Spec
	fail := func(field, message, remedy string) { r.Fail(d.at[field], "conflict", field, message, remedy) }

	if s.Image != "" {
		fail("resources.share_mps",
			"must be false for a job with image, got true: a container cannot reach the MPS of its node",
			"remove share_mps, or image")
	}

	if c := s.Resources.ShareClass; c != "" && c != job.ShareNormal {
		fail("resources.share_class", fmt.Sprintf("must be normal with share_mps, got %s: nobody is served first there", c),
			"remove share_mps, or share_class")
	}

	if c := s.Checkpoint; c != nil && c.Snapshot {
		fail("checkpoint.snapshot",
			"must be false with share_mps, got true: a part of the program's state is in the MPS server",
			"let the program save checkpoints itself, or remove share_mps")
	}
}

// sameGPU refuses same_gpu where it means nothing: without GPUs, or on one node.
func (r *reader) sameGPU(d *draft) {
	res := &d.entry.Spec.Resources
	if res.SameGPU && (!res.UsesGPUs() || res.Nodes == job.Range{Min: 1, Max: 1}) {
		r.Fail(d.at["resources.same_gpu"], "conflict", "resources.same_gpu",
			"must be false for a job on one node or without GPUs, got true", "remove it, or ask for several nodes with GPUs")
	}
}

// snapshot refuses snapshots of what cannot be saved by one.
func (r *reader) snapshot(d *draft) {
	c, res := d.entry.Spec.Checkpoint, &d.entry.Spec.Resources
	if c == nil || !c.Snapshot {
		return
	}

	if d.entry.Spec.Image != "" {
		r.Fail(d.at["checkpoint.snapshot"], "conflict", "checkpoint.snapshot",
			"must be false for a job with image, got true", "let the program save checkpoints itself, or remove image")
	}

	single := func(n job.Range) bool { return n == job.Range{} || n.Max == 1 }
	if !single(res.Nodes) || !single(res.GPUs) {
		r.Fail(d.at["checkpoint.snapshot"], "conflict", "checkpoint.snapshot",
			"must be false for a job that may have several GPUs or nodes, got true",
			"ask for one GPU on one node, or let the program save checkpoints itself")
	}
}
