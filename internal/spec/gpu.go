package spec

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/job"
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
			i.bad(quote(s)+" is a memory and stands beside other entries", "write it as gpu_memory, which goes for all of them")
		case g.memory:
			v.d.gpuMemory, res.GPUMemory = true, g.atLeast
		case slices.Contains(res.GPU, g.kind):
			i.bad(quote(g.kind.String())+" is in the list twice", "take one of them out")
		default:
			res.GPU = append(res.GPU, g.kind)
		}
		if g.count != nil && v.d.gpuCount != nil && *g.count != *v.d.gpuCount {
			i.fail("conflict", fmt.Sprintf("asks for %s GPUs, and an entry before it for %s", g.count, v.d.gpuCount),
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
	const howto = "write a model as in A100, A100:80GB or A100:80GB:8"
	parts := strings.Split(s, ":")
	first := strings.TrimSpace(parts[0])
	if startsWithDigit(first) {
		r, err := job.ParseByteRange(first)
		if err != nil {
			return g, quote(s) + " is no GPU model", howto + ", a memory as in 24GB.., or gpus: 8 for a number of GPUs"
		}
		if problem, remedy := badGPUMemory(r); problem != "" {
			return g, quote(s) + " " + problem, remedy
		}
		g.memory, g.atLeast = true, r
	} else if !modelName(first) {
		return g, quote(s) + " is no GPU model", howto
	}
	g.kind.Model = first
	for _, part := range parts[1:] {
		part = strings.TrimSpace(part)
		count, err := job.ParseRange(part)
		if err == nil && g.count == nil {
			if count.Min < 1 || count.Min > maxGPUs || count.Max > maxGPUs {
				return g, fmt.Sprintf("%s asks for %s GPUs", quote(s), count),
					fmt.Sprintf("write 1 to %d; a memory needs a unit, as in A100:80GB", maxGPUs)
			}
			g.count = &count
			continue
		}
		memory, err := job.ParseBytes(part)
		if err != nil || g.memory || g.kind.Memory != 0 || g.count != nil || memory < minMemory || memory > maxGPUMemory {
			return g, quote(s) + " is no GPU model", howto
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
	return unitKind("an amount of memory or a range of amounts", `^[0-9.]*[0-9kKmMgGtTiIbB. ]*\+?$`,
		func(s *job.Spec) *job.ByteRange { return &s.Resources.GPUMemory }, job.ParseByteRange, badGPUMemory)
}

func badGPUMemory(r job.ByteRange) (string, string) {
	if max(r.Min, r.Max) < minMemory || max(r.Min, r.Max) > maxGPUMemory {
		return "is no memory that a GPU has", "write it as in 24GB.. or 24GB..80GB"
	}
	return "", ""
}

// resources checks that the fields about GPUs agree, and fills in how many.
func (r *reader) resources(d *draft) {
	res := &d.entry.Spec.Resources
	gpus, given := d.at["resources.gpus"]
	if given {
		if _, err := job.ParseRange(gpus.Value); err != nil {
			return // told when it was read
		}
	}
	if n, both := d.at["resources.gpu_memory"]; both && d.gpuMemory {
		r.fail(n, "conflict", "resources.gpu_memory", "gpu gives a memory as well", "write it once")
	}
	if d.gpuCount != nil {
		if given && res.GPUs != *d.gpuCount {
			r.fail(gpus, "conflict", "resources.gpus", fmt.Sprintf("says %s, and gpu says %s", res.GPUs, d.gpuCount), "write the number once")
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
		r.fail(gpus, "conflict", "resources.gpus", "is 0, and other fields say which GPU", "ask for at least 1, or take the other fields out")
	}
}
