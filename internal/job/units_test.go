package job_test

import (
	"encoding/json"
	"math"
	"testing"

	"pgregory.net/rapid"

	"trainyard/internal/job"
)

// unit is a value that is written as in a job file.
type unit interface {
	comparable
	String() string
}

// roundTrip checks that what is written reads back, by the parser and through JSON.
func roundTrip[T unit](t *rapid.T, v T, parse func(string) (T, error)) {
	got, err := parse(v.String())
	if err != nil || got != v {
		t.Fatalf("%#v is written %s and read as %#v, %v", v, v, got, err)
	}

	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}

	var back T
	if err := json.Unmarshal(text, &back); err != nil || back != v {
		t.Fatalf("%#v is %s in JSON and read as %#v, %v", v, text, back, err)
	}
}

func TestUnitsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	const exact = 1 << 53 // beyond this a decimal number has no exact value

	// A number of any magnitude, often one that a larger unit divides.
	draw := func(t *rapid.T, most int64, steps ...int64) int64 {
		step := rapid.SampledFrom(append(steps, 1)).Draw(t, "step")
		return step * rapid.Int64Range(0, most/step).Draw(t, "times")
	}

	for name, prop := range map[string]func(*rapid.T){
		"bytes": func(t *rapid.T) {
			roundTrip(t, job.Bytes(draw(t, exact, 1<<10, 1<<20, 1<<30, 1<<40)), job.ParseBytes)
		},
		"lengths of time": func(t *rapid.T) {
			roundTrip(t, job.Duration(1e6*draw(t, 9e12, 1000, 60_000, 3600_000, 24*3600_000)), job.ParseDuration)
		},
		"money": func(t *rapid.T) { roundTrip(t, job.Money(draw(t, exact, 1000, 1e6)), job.ParseMoney) },
		"CPUs":  func(t *rapid.T) { roundTrip(t, job.CPUs(draw(t, 1e9, 1000)), job.ParseCPUs) },
		"counts": func(t *rapid.T) {
			r := job.Range{Min: rapid.IntRange(0, 100).Draw(t, "min")}
			if rapid.Bool().Draw(t, "has an upper end") {
				r.Max = r.Min + rapid.IntRange(0, 100).Draw(t, "more")
			}

			roundTrip(t, r, job.ParseRange)
		},
		"amounts": func(t *rapid.T) {
			r := job.ByteRange{Min: job.Bytes(draw(t, 1<<42, 1<<30))}
			if rapid.Bool().Draw(t, "has an upper end") {
				r.Max = r.Min + job.Bytes(draw(t, 1<<42, 1<<30))
			}

			roundTrip(t, r, job.ParseByteRange)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, prop)
		})
	}
}

func TestUnitsThatAreRead(t *testing.T) {
	t.Parallel()
	type texts = map[string]string

	check := func(kind string, cases texts, read func(string) (string, error)) {
		for in, want := range cases {
			got, err := read(in)
			if err != nil {
				got = "error"
			}

			if got != want {
				t.Errorf("%s %q is read as %s (%v), want %s", kind, in, got, err, want)
			}
		}
	}

	check("bytes", texts{
		"24GB":         "24GB",
		"24 gib":       "24GB",
		"1.5GiB":       "1536MB",
		"512m":         "512MB",
		"100b":         "100B",
		"0b":           "0B",
		" 1tb ":        "1TB",
		".5k":          "512B",
		"24":           "error",
		"GB":           "error",
		"-1GB":         "error",
		"1e3GB":        "error",
		"0x1GB":        "error",
		"1.2.3GB":      "error",
		"":             "error",
		"24GBs":        "error",
		"9999999999TB": "error",
		"NaNGB":        "error",
		"infGB":        "error",
		"٣GB":          "error",
		"1 000GB":      "error",
	}, func(s string) (string, error) {
		v, err := job.ParseBytes(s)
		return v.String(), err
	})

	check("time", texts{
		"90s":        "1m30s",
		"1h30m":      "1h30m",
		"2d":         "2d",
		"1w":         "7d",
		"1.5h":       "1h30m",
		"1 h 30 m":   "1h30m",
		"250ms":      "250ms",
		"0s":         "0s",
		"1D":         "1d",
		"36500d":     "36500d",
		"10":         "error",
		"":           "error",
		"m":          "error",
		"-5m":        "error",
		"1h30":       "error",
		"1e9s":       "error",
		"1y":         "error",
		"999999999w": "error",
		"106752d":    "error",
		"1..5h":      "error",
	}, func(s string) (string, error) {
		v, err := job.ParseDuration(s)
		return v.String(), err
	})

	check("money", texts{
		"$40":             "$40",
		"40":              "$40",
		"$1.25":           "$1.25",
		" $ 3 ":           "$3",
		"$0.000001":       "$0.000001",
		"$0":              "$0",
		"":                "error",
		"$":               "error",
		"-4":              "error",
		"€4":              "error",
		"4$":              "error",
		"$1,000":          "error",
		"$99999999999999": "error",
		"$$4":             "error",
	}, func(s string) (string, error) {
		v, err := job.ParseMoney(s)
		return v.String(), err
	})

	check("count", texts{
		"4":           "4",
		"1..8":        "1..8",
		"2..":         "2..",
		"..8":         "1..8",
		"4+":          "4..",
		" 1 .. 8 ":    "1..8",
		"0":           "0",
		"3..3":        "3",
		"0..2":        "0..2",
		"":            "error",
		"..":          "error",
		"+":           "error",
		"8..1":        "error",
		"-1":          "error",
		"1.5":         "error",
		"a":           "error",
		"1..2..3":     "error",
		"99999999999": "error",
		"..0":         "error",
		"1...3":       "error",
		"+4":          "error",
	}, func(s string) (string, error) {
		v, err := job.ParseRange(s)
		return v.String(), err
	})

	check("amount", texts{
		"24GB..": "24GB..", "24GB": "24GB..", "24GB+": "24GB..", "24GB..80GB": "24GB..80GB", "..80GB": "0B..80GB",
		"": "error", "..": "error", "80GB..24GB": "error", "24": "error", "24..80GB": "error",
	}, func(s string) (string, error) {
		v, err := job.ParseByteRange(s)
		return v.String(), err
	})

	check("CPUs", texts{
		"8": "8", "0.5": "0.5", ".25": "0.25", "0": "0", "1.0005": "1.001", " 2 ": "2",
		"": "error", "-1": "error", "1e3": "error", "two": "error", "1000001": "error", ".": "error", "1 2": "error",
	}, func(s string) (string, error) {
		v, err := job.ParseCPUs(s)
		return v.String(), err
	})
}

func TestAmountsForPeople(t *testing.T) {
	t.Parallel()

	for in, want := range map[job.Bytes]string{0: "0B", 1023: "1023B", 1 << 10: "1KB", 16_733_011_968: "15.6GB", 80 << 30: "80GB", 3 << 39: "1.5TB"} {
		if got := in.Short(); got != want {
			t.Errorf("%d bytes are shown as %s, want %s", int64(in), got, want)
		}
	}

	for in, want := range map[job.Duration]string{0: "0s", 1: "0ms", 1e6: "1ms", -90e9: "-1m30s", 1e9 + 1: "1s"} {
		if got := in.String(); got != want {
			t.Errorf("%d ns are shown as %s, want %s", int64(in), got, want)
		}
	}
}

func TestGPUKindMatches(t *testing.T) {
	t.Parallel()
	const gb = job.Bytes(1 << 30)
	for _, tc := range []struct {
		kind, model string
		memory      job.Bytes
		want        bool
	}{
		{"A100", "NVIDIA A100-SXM4-80GB", 80 * gb, true},
		{"a100", "NVIDIA A100-SXM4-80GB", 80 * gb, true},
		{"A100:80GB", "NVIDIA A100-SXM4-80GB", 81251 << 20, true},
		{"A100:40GB", "NVIDIA A100-SXM4-80GB", 80 * gb, false},
		{"A100:80GB", "NVIDIA A100-SXM4-40GB", 40 * gb, false},
		{"A100-80GB", "NVIDIA A100-SXM4-80GB", 80 * gb, true},
		{"A100-80GB", "NVIDIA A100-SXM4-40GB", 40 * gb, false},
		{"A10", "NVIDIA A100-SXM4-80GB", 80 * gb, false},
		{"A100", "NVIDIA A10", 24 * gb, false},
		{"A10", "NVIDIA A10", 24 * gb, true},
		{"A10", "NVIDIA A10G", 24 * gb, false},
		{"L4", "NVIDIA L40S", 48 * gb, false},
		{"L4:24GB", "NVIDIA L4", 23034 << 20, true},
		{"H100", "NVIDIA H100 NVL", 94 * gb, true},
		{"H100", "NVIDIA GH200 480GB", 96 * gb, false},
		{"RTX 4090", "NVIDIA GeForce RTX 4090", 24 * gb, true},
		{"4090", "NVIDIA GeForce RTX 4090", 24 * gb, true},
		{"RTX4090", "NVIDIA GeForce RTX 4090", 24 * gb, false},
		{"RTX 4090", "NVIDIA GeForce RTX 4080", 16 * gb, false},
		{"4090 RTX", "NVIDIA GeForce RTX 4090", 24 * gb, false},
		{"NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", 80 * gb, true},
		{"NVIDIA A100-SXM4-80GB", "NVIDIA A100", 80 * gb, false},
		{"MI300X", "AMD Instinct MI300X", 192 * gb, true},
		{"A100:80GB", "NVIDIA A100", 0, false},
	} {
		var k job.GPUKind
		if err := k.UnmarshalText([]byte(tc.kind)); err != nil {
			t.Fatalf("%s: %v", tc.kind, err)
		}

		if got := k.Matches(tc.model, tc.memory); got != tc.want {
			t.Errorf("%s accepts %s with %s: %v, want %v", tc.kind, tc.model, tc.memory, got, tc.want)
		}

		if text, err := k.MarshalText(); err != nil || string(text) != tc.kind {
			t.Errorf("%s is written %s, %v", tc.kind, text, err)
		}
	}

	var k job.GPUKind
	if err := k.UnmarshalText([]byte("A100:lots")); err == nil {
		t.Error("A100:lots is read")
	}
}

func TestMoneyIsExact(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]job.Money{
		"$4398046511.145":       4398046511145000,
		"$9223372036854.775807": math.MaxInt64,
		"0.0000004":             0,
		"0.0000005":             1,
		".5":                    500_000,
		"5.":                    5_000_000,
		"$0.1":                  100_000,
		"000000000000000000001": 1_000_000,
		"$1000000000000.000001": 1_000_000_000_000_000_001,
	} {
		got, err := job.ParseMoney(text)
		if err != nil || got != want {
			t.Errorf("%s reads as %d, %v; want %d", text, got, err, want)
		}
	}

	for _, text := range []string{"", "$", ".", "1.2.3", "-1", "1e3", "9223372036854.775808", "99999999999999999999"} {
		if got, err := job.ParseMoney(text); err == nil {
			t.Errorf("%q reads as %d, want an error", text, got)
		}
	}

	rapid.Check(t, func(t *rapid.T) {
		want := job.Money(rapid.Int64Range(0, math.MaxInt64).Draw(t, "money"))

		got, err := job.ParseMoney(want.String())
		if err != nil || got != want {
			t.Fatalf("%d is written %s and read back as %d, %v", want, want, got, err)
		}
	})
}
