package gpuspec

import (
	"cmp"
	"encoding/csv"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/fleet"
	"trainyard/internal/job"
)

const gb = job.Bytes(1 << 30)

func TestFindByNameAndMemory(t *testing.T) {
	t.Parallel()
	tests := []struct {
		model  string
		memory job.Bytes
		want   string // "" for none
	}{
		{"NVIDIA A10", 23028 << 20, "A10"},
		{"NVIDIA A10G", 22731 << 20, "A10G"},
		{"NVIDIA A100-SXM4-80GB", 81920 << 20, "A100 SXM4 80GB"},
		{"NVIDIA A100-SXM4-40GB", 40960 << 20, "A100 SXM4 40GB"},
		{"NVIDIA A100 80GB PCIe", 81920 << 20, "A100 PCIe 80GB"},
		{"NVIDIA H100 80GB HBM3", 81559 << 20, "H100 SXM5 80GB"},
		{"NVIDIA H100 PCIe", 81559 << 20, "H100 PCIe 80GB"},
		{"NVIDIA H200", 143771 << 20, "H200 SXM5 141GB"},
		{"NVIDIA B200", 183359 << 20, "B200 SXM 180GB"},
		{"Tesla K80", 11441 << 20, "Tesla K80"},
		{"Tesla V100-SXM2-16GB", 16160 << 20, "Tesla V100 SXM2 16GB"},
		{"NVIDIA GeForce RTX 3060", 12288 << 20, "GeForce RTX 3060 12GB"},
		{"NVIDIA GeForce RTX 3060", 8192 << 20, "GeForce RTX 3060 8GB"},
		{"NVIDIA GeForce RTX 3080", 10240 << 20, "GeForce RTX 3080 10GB"},
		{"NVIDIA GeForce RTX 3080", 12288 << 20, "GeForce RTX 3080 12GB"},
		{"AMD Instinct MI300X", 196592 << 20, "Instinct MI300X"},
		{"Intel(R) Data Center GPU Max 1550", 128 * gb, "Data Center GPU Max 1550"},

		{"A100", 0, "A100 SXM4 40GB"},
		{"A100", 40 * gb, "A100 SXM4 40GB"},
		{"A100", 80 * gb, "A100 SXM4 80GB"},
		{"A100-80GB", 0, "A100 SXM4 80GB"},
		{"A100-80GB", 80 * gb, "A100 SXM4 80GB"},
		{"A100-80GB-SXM", 80 * gb, "A100 SXM4 80GB"},
		{"a100_40gb", 0, "A100 SXM4 40GB"},
		{"H100", 0, "H100 SXM5 80GB"},
		{"H100", 94 * gb, "H100 NVL 94GB"},
		{"H100-80GB", 0, "H100 SXM5 80GB"},
		{"H100-MEGA", 80 * gb, "H100 SXM5 80GB"},
		{"H200-141GB", 0, "H200 SXM5 141GB"},
		{"T4", 16 * gb, "T4"},
		{"T4g", 16 * gb, "T4"},
		{"L4", 22888 << 20, "L4"},
		{"L40S", 45776 << 20, "L40S"},
		{"V100", 0, "Tesla V100 SXM2 16GB"},
		{"V100-32GB", 0, "Tesla V100 SXM2 32GB"},
		{"P100", 16 * gb, "Tesla P100 PCIe 16GB"},
		{"RTX4090", 24 * gb, "GeForce RTX 4090"},
		{"RTX 4090", 24 * gb, "GeForce RTX 4090"},
		{"RTX6000", 24 * gb, "Quadro RTX 6000"},
		{"RTX6000", 96 * gb, "RTX PRO 6000 Blackwell Server"},
		{"RTX6000-Ada", 48 * gb, "RTX 6000 Ada"},
		{"RTX PRO 6000 96GB", 0, "RTX PRO 6000 Blackwell Server"},
		{"RTXA4000", 16 * gb, "RTX A4000"},
		{"GAUDI2", 96 * gb, "Gaudi 2"},
		{"Radeon Pro V520", 8 * gb, "Radeon Pro V520"},

		{"A1", 0, ""},
		{"A1000", 0, ""},
		{"A100-80GB", 40 * gb, ""},
		{"L4", 11444 << 20, ""}, // half of one
		{"NVIDIA A100-SXM4-80GB MIG 1g.10gb", 10 * gb, ""},
		{"PRO-6000-MIG-24GB", 24 * gb, ""},
		{"H100-0GB", 0, ""},
		{"tpu-v5p-8", 0, ""},
		{"NVIDIA", 0, ""},
		{"-80GB", 0, ""},
		{"", 0, ""},
	}

	for _, tt := range tests {
		got, ok := Find(tt.model, tt.memory)
		if got.Name != tt.want || ok != (tt.want != "") {
			t.Errorf("Find(%q, %s) = %q, %v; want %q", tt.model, tt.memory, got.Name, ok, tt.want)
		}
	}
}

func TestPeakIsTheNumbersOneTrainsIn(t *testing.T) {
	t.Parallel()

	for model, want := range map[string]float64{"H100": 989.4, "T4": 65, "K80": 4.37, "P100": 18.7, "MI100": 92.3} {
		spec, ok := Find(model, 0)
		if !ok || spec.Peak() != want {
			t.Errorf("%s has a peak of %g (%v), want %g", model, spec.Peak(), ok, want)
		}
	}
}

func TestDescribeKeepsWhatIsKnown(t *testing.T) {
	t.Parallel()
	got := Describe(fleet.GPU{Model: "A100" + fleet.FakeMark, Memory: 80 * gb, Fake: true})
	if got.Peak != 312 || got.Bandwidth != 2039 || got.Watts != 400 || got.Achievable != 271.2 {
		t.Errorf("a declared A100 is %+v", got)
	}

	limited := fleet.GPU{Model: "NVIDIA A100-SXM4-80GB", Memory: 80 * gb, Watts: 275, Measured: 250}
	got = Describe(limited)
	if got.Watts != 275 || got.Measured != 250 || got.Peak != 312 {
		t.Errorf("an A100 held to 275 W is %+v", got)
	}

	unknown := fleet.GPU{Model: "Quantum 9000", Memory: gb}
	if got := Describe(unknown); got != unknown {
		t.Errorf("an unknown GPU became %+v", got)
	}
}

func TestTableIsSound(t *testing.T) {
	t.Parallel()
	type named struct {
		name   string
		memory float64
	}

	seen := map[named]string{}

	names := map[string]bool{}
	for _, table := range tables {
		for i := range table {
			r := &table[i]
			if names[r.name] {
				t.Errorf("%s is there twice", r.name)
			}

			names[r.name] = true

			if r.memory <= 0 || r.bandwidth <= 0 || r.arch == "" {
				t.Errorf("%s lacks memory, bandwidth or generation", r.name)
			}

			for n := range strings.SplitSeq(r.names, "|") {
				if n == "" || plain(n) != n {
					t.Errorf("%s: the name %q is not plain", r.name, n)
				}

				if other, ok := seen[named{n, r.memory}]; ok {
					t.Errorf("%s and %s share the name %q and their memory", r.name, other, n)
				}

				seen[named{n, r.memory}] = r.name

				if got, ok := find(n, r.spec().Memory); !ok || got.Name != r.name {
					t.Errorf("%s is not found as %q: %q", r.name, n, got.Name)
				}
			}

			checkRates(t, r.spec())
		}
	}

	if len(All()) != len(names) || len(names) < 76 {
		t.Errorf("%d kinds listed, %d in the tables", len(All()), len(names))
	}
}

// checkRates holds the rates of a kind to what all generations share: half the
// width, twice the speed.
func checkRates(t *testing.T, s Spec) {
	t.Helper()

	if s.TF32 > 0 && s.BF16 > 0 && math.Abs(s.BF16/s.TF32-2) > 0.06 {
		t.Errorf("%s: bf16 %g is not twice tf32 %g", s.Name, s.BF16, s.TF32)
	}

	if s.FP8 > 0 && s.BF16 > 0 && s.Name != "Gaudi 3" && math.Abs(s.FP8/s.BF16-2) > 0.06 {
		t.Errorf("%s: fp8 %g is not twice bf16 %g", s.Name, s.FP8, s.BF16)
	}

	if s.Achievable > s.BF16 {
		t.Errorf("%s: %g was seen of a peak of %g", s.Name, s.Achievable, s.BF16)
	}
}

func TestAnyNameIsAnswered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		model := rapid.String().Draw(t, "model")
		memory := job.Bytes(rapid.Int64().Draw(t, "memory"))
		spec, ok := Find(model, memory)
		if !ok && spec != (Spec{}) {
			t.Fatalf("not found, and yet %+v", spec)
		}

		if ok && memory > 0 && apart(memory, spec.Memory) >= otherMemory {
			t.Fatalf("%q of %s is taken for one of %s", model, memory, spec.Memory)
		}
	})
}

// TestTableAgreesWithTheData compares the table with the collected data sheets:
// shared/data/gpu-specs/gpus.csv.
func TestTableAgreesWithTheData(t *testing.T) {
	t.Parallel()
	folder := cmp.Or(os.Getenv("TRAINYARD_DATA"), filepath.Join("..", "..", "..", "shared", "data"))
	file, err := os.Open(filepath.Join(folder, "gpu-specs", "gpus.csv"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("gpu-specs/gpus.csv is not there: set TRAINYARD_DATA to compare with it")
	}

	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = file.Close() }()

	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}

	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}

	for _, line := range rows[1:] {
		number := func(name string) float64 {
			v, err := strconv.ParseFloat(line[column[name]], 64)
			if err != nil {
				return 0 // blank: not known
			}

			return v
		}

		for name := range strings.SplitSeq(line[column["match"]], "|") {
			spec, ok := Find(name, job.Bytes(number("memory_gb")*(1<<30)))
			if !ok || spec.Name != line[column["name"]] || spec.Vendor != line[column["vendor"]] ||
				spec.Arch != line[column["arch"]] {
				t.Errorf("%s as %q: found %q of %s, %s", line[column["name"]], name, spec.Name, spec.Vendor, spec.Arch)
				continue
			}

			for column, got := range map[string]float64{
				"memory_gb": float64(spec.Memory / gb), "bandwidth_gbs": spec.Bandwidth, "fp32_tflops": spec.FP32, "tf32_tflops": spec.TF32,
				"fp16_tflops": spec.FP16, "bf16_tflops": spec.BF16, "fp8_tflops": spec.FP8, "tdp_w": spec.TDP, "achievable_bf16_tflops": spec.Achievable,
			} {
				if want := number(column); want != 0 && math.Abs(got/want-1) > 0.02 {
					t.Errorf("%s: %s is %g, the data say %g", spec.Name, column, got, want)
				}
			}
		}
	}

	if len(rows) < 50 {
		t.Errorf("only %d rows were compared", len(rows)-1)
	}
}
