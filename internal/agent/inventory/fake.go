package inventory

import (
	"fmt"
	"strconv"
	"strings"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/gpuspec"
	"trainyard/internal/job"
)

// maxFake bounds the number of declared GPUs.
const maxFake = 1024

// ParseFake parses declared GPUs, such as "8xA100:80GB" or "4xA100:40GB,2xH100:80GB". They are for
// evaluation and tests: runs are placed on them as if they existed, and every list shows that they
// do not. Their speed is that of their model.
func ParseFake(text string) ([]fleet.GPU, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}

	var all []fleet.GPU
	for part := range strings.SplitSeq(text, ",") {
		count, kind, err := parseFakePart(strings.TrimSpace(part))
		if err == nil && len(all)+count > maxFake {
			err = fmt.Errorf("more than %d GPUs", maxFake)
		}

		if err != nil {
			return nil, fault.New(fault.Invalid, "fake_gpus_invalid",
				"fake-gpus must be a list such as 8xA100:80GB, got %.80q: %v", text, err).
				WithField("fake-gpus").
				WithRemedy("write count, model and memory, e.g. 8xA100:80GB")
		}

		for range count {
			index := len(all)
			all = append(all, gpuspec.Describe(fleet.GPU{
				Index: index, UUID: "FAKE-" + strconv.Itoa(index), Model: kind.Model + fleet.FakeMark,
				Memory: kind.Memory, Driver: "fake", Fake: true,
			}))
		}
	}

	return all, nil
}

func parseFakePart(part string) (int, job.GPUKind, error) {
	number, text, ok := strings.Cut(part, "x")
	count, err := strconv.Atoi(number)
	if !ok || err != nil || count < 1 || count > maxFake {
		return 0, job.GPUKind{}, fmt.Errorf("%.40q does not start with a count and an x", part)
	}

	var kind job.GPUKind
	if err := kind.UnmarshalText([]byte(text)); err != nil {
		return 0, kind, err
	}
	if kind.Model == "" || kind.Memory <= 0 {
		return 0, kind, fmt.Errorf("%.40q lacks a model or its memory", part)
	}
	if !gpuName(kind.Model) {
		return 0, kind, fmt.Errorf("%.40q is not a GPU model", kind.Model)
	}

	return count, kind, nil
}

// gpuName reports whether a job file could request a GPU by this name.
func gpuName(s string) bool {
	for i, c := range []byte(s) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '-' && c != ' ' && c != '_') {
			return false
		}
	}

	return len(s) <= 40
}
