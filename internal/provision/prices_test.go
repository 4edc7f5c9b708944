package provision_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/provision"
	"trainyard/test/fuzzing"
)

const gib = job.Bytes(1 << 30)

const sample = `# what we may provision
providers:
  - provider: aws
    region: us-east-1
    boot: 4m
    min_billing: 1m
    loss_rate: 0.03
    types:
      - type: g5.xlarge
        zone: use1-az1
        gpu: A10G
        gpu_memory: 24GB
        tflops: 70
        cpus: 4
        memory: 16GB
        hourly: $1.006
        spot: $0.43
        max_nodes: 8
      - {type: p5.48xlarge, region: us-west-2, boot: 0s, gpu: H100, gpus: 8, gpu_memory: 80GB, cpus: 192, memory: 2TB, spot: 20.28, loss_rate: 0.5}
  - provider: process
    fake: true
    billing_increment: 1h
    types:
      - {type: small, cpus: 0.5, memory: 512MB, hourly: 0}
`

func TestAPriceFileIsRead(t *testing.T) {
	t.Parallel()
	got, err := provision.ParseOffers("prices.yaml", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}

	g5 := fleet.Offer{
		Name: "aws/g5.xlarge/us-east-1/use1-az1", Provider: "aws", Type: "g5.xlarge", Region: "us-east-1", Zone: "use1-az1",
		GPU: "A10G", GPUs: 1, GPUMemory: 24 * gib, TFLOPS: 70, CPUs: 4000, Memory: 16 * gib, Hourly: 1_006_000,
		Boot: job.Duration(4 * time.Minute), MinBilling: job.Duration(time.Minute), MaxNodes: 8,
	}

	spot := g5
	spot.Name = g5.Name + "/spot"
	spot.Spot = true
	spot.Hourly = 430_000
	spot.LossRate = 0.03
	want := []fleet.Offer{
		g5,
		spot,
		{
			Name: "aws/p5.48xlarge/us-west-2/spot", Provider: "aws", Type: "p5.48xlarge", Region: "us-west-2", Spot: true,
			GPU: "H100", GPUs: 8, GPUMemory: 80 * gib, CPUs: 192_000, Memory: 2048 * gib, Hourly: 20_280_000,
			MinBilling: job.Duration(time.Minute), LossRate: 0.5,
		},
		{
			Name:             "process/small",
			Provider:         "process",
			Type:             "small",
			CPUs:             500,
			Memory:           gib / 2,
			BillingIncrement: job.Duration(time.Hour),
			Fake:             true,
		},
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAllMistakesOfAPriceFileAreToldAtOnce(t *testing.T) {
	t.Parallel()
	text := `providers:
  - provider: AWS
    regoin: us-east-1
    boot: 4
    types:
      - {type: a/b, gpu: A10G, vcpus: 4, memory: 16GB, hourly: $1}
      - {type: ok, cpus: 4, memory: 16GB, hourly: $1}
      - {type: ok, cpus: 4, memory: 16GB, hourly: $2}
      - {type: x, cpus: 4, memory: 16GB, gpus: 2, hourly: $1}
      - {type: y, cpus: 4, memory: 16GB}
      - {type: z, cpus: 4, memory: 16GB, hourly: -1, spot: , fake: maybe, gpus: 65, loss_rate: NaN}
      - just text
  - types: []
    gpu: H100
    max_nodes: 1
    max_nodes: 2
`

	_, err := provision.ParseOffers("prices.yaml", []byte(text))

	var list fault.List
	if !errors.As(err, &list) {
		t.Fatalf("got %v, want a list of mistakes", err)
	}

	if !strings.HasPrefix(err.Error(), "prices.yaml: line 2, column 15: ") {
		t.Errorf("the error is %q and does not begin with the file and the first place", err)
	}

	want := []string{
		`2:15 bad_value providers[0].provider`,
		`3:5 unknown_key providers[0].regoin (did you mean region?)`,
		`4:11 bad_value providers[0].boot`,
		`6:9 missing_key providers[0].types[0].cpus`,
		`6:16 bad_value providers[0].types[0].type`,
		`6:32 unknown_key providers[0].types[0].vcpus (did you mean cpus?)`,
		`8:9 duplicate_offer providers[0].types[2]`,
		`9:9 missing_key providers[0].types[3].gpu`,
		`10:9 missing_key providers[0].types[4].hourly`,
		`11:50 bad_value providers[0].types[5].hourly`,
		`11:60 missing_value providers[0].types[5].spot`,
		`11:68 bad_value providers[0].types[5].fake`,
		`11:81 bad_value providers[0].types[5].gpus`,
		`11:96 bad_value providers[0].types[5].loss_rate`,
		`12:9 wrong_type providers[0].types[6]`,
		`13:5 missing_key providers[1].provider`,
		`14:5 unknown_key providers[1].gpu (write gpu beside type)`,
		`16:5 duplicate_key providers[1].max_nodes`,
	}

	var got []string
	for _, e := range list {
		line := fmt.Sprintf("%d:%d %s %s", e.Line, e.Column, e.Code, e.Field)
		if e.Code == "unknown_key" {
			line += " (" + e.Remedy + ")"
		}

		if e.Kind != fault.Invalid || e.Message == "" || e.Remedy == "" {
			t.Errorf("%s has kind %q, message %q, remedy %q", line, e.Kind, e.Message, e.Remedy)
		}

		got = append(got, line)
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWholePriceFilesAreRefused(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	many.WriteString("providers:\n- provider: a\n  types:\n")

	for i := range 10_005 {
		fmt.Fprintf(&many, "  - {type: t%d, cpus: 1, memory: 1GB, hourly: 1}\n", i)
	}

	broken := "providers:\n- provider: a\n  types:\n" + strings.Repeat("  - {type: /}\n", 60)
	for name, c := range map[string]struct {
		text, code string
		line       int
	}{
		"nothing":           {"", "empty_file", 0},
		"only a comment":    {"# prices\n", "empty_file", 0},
		"no YAML":           {"providers:\n  - [\n", "yaml_syntax", 2},
		"a list on top":     {"- provider: aws\n", "wrong_type", 1},
		"two documents":     {"providers: []\n---\nproviders: []\n", "too_many_documents", 1},
		"no providers":      {"offers: []\n", "unknown_key", 1},
		"too many bytes":    {"# " + strings.Repeat("x", 4<<20), "too_large", 0},
		"too many offers":   {many.String(), "too_large", 10_004},
		"too many mistakes": {broken, "too_many_errors", 0},
		"an alias":          {"providers:\n- &a {provider: x, types: []}\n- *a\n", "not_supported", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			offers, err := provision.ParseOffers("prices.yaml", []byte(c.text))

			var list fault.List
			if !errors.As(err, &list) || len(offers) > 0 {
				t.Fatalf("got %d offers and %v, want a list of mistakes", len(offers), err)
			}

			if most := 101; len(list) > most || c.code == "too_large" && len(list) > 1 {
				t.Errorf("%d mistakes are told", len(list))
			}

			for _, e := range list {
				if e.Code == c.code && e.Line == c.line {
					return
				}
			}

			t.Errorf("got %v, want %s at line %d", err, c.code, c.line)
		})
	}
}

func TestNoProvidersAreNoOffers(t *testing.T) {
	t.Parallel()
	got, err := provision.ParseOffers("x", provision.WriteOffers(nil))
	if err != nil || len(got) != 0 {
		t.Errorf("got %v, %v, want nothing", got, err)
	}
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		offers := drawOffers(t)
		text := provision.WriteOffers(offers)
		got, err := provision.ParseOffers("x", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}

		if diff := cmp.Diff(offers, got); diff != "" {
			t.Fatalf("%s\n%s", diff, text)
		}

		if again := provision.WriteOffers(got); string(again) != string(text) {
			t.Fatalf("written again it is\n%s\nand was\n%s", again, text)
		}
	})
}

func TestTwinsAreOneLine(t *testing.T) {
	t.Parallel()
	offers, err := provision.ParseOffers("x", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}

	want := `providers:
  - provider: aws
    region: us-east-1
    boot: 4m
    min_billing: 1m
    types:
      - {type: g5.xlarge, zone: use1-az1, gpu: A10G, gpus: 1, gpu_memory: 24GB, tflops: 70, cpus: 4, memory: 16GB, hourly: $1.006, spot: $0.43, loss_rate: 0.03, max_nodes: 8}
  - provider: aws
    region: us-west-2
    min_billing: 1m
    types:
      - {type: p5.48xlarge, gpu: H100, gpus: 8, gpu_memory: 80GB, cpus: 192, memory: 2TB, spot: $20.28, loss_rate: 0.5}
  - provider: process
    billing_increment: 1h
    fake: true
    types:
      - {type: small, cpus: 0.5, memory: 512MB, hourly: $0}
`

	if diff := cmp.Diff(want, string(provision.WriteOffers(offers))); diff != "" {
		t.Error(diff)
	}
}

// drawOffers makes offers with names of their own.
func drawOffers(t *rapid.T) []fleet.Offer {
	word := rapid.SampledFrom(
		[]string{
			"a",
			"true",
			"null",
			"~",
			"1.0",
			"x-y",
			"Denmark, DK",
			"#1",
			"é",
			"spot",
			`q"uote`,
			"[b]",
			"{",
			"-",
			"0x1f",
			"a: b",
			"yes",
			`back\slash`,
		},
	)

	maybe := rapid.OneOf(rapid.Just(""), word)
	length := rapid.Custom(func(t *rapid.T) job.Duration {
		return job.Duration(rapid.Int64Range(0, 100_000).Draw(t, "ms")) * job.Duration(time.Millisecond)
	})
	var offers []fleet.Offer
	seen := map[string]bool{}
	add := func(o fleet.Offer) {
		o.Name = o.NameOf()
		if !seen[o.Name] {
			seen[o.Name] = true
			offers = append(offers, o)
		}
	}

	for range rapid.IntRange(0, 12).Draw(t, "types") {
		o := fleet.Offer{
			Provider:         rapid.SampledFrom([]string{"aws", "process", "0"}).Draw(t, "provider"),
			Type:             word.Draw(t, "type"),
			Region:           maybe.Draw(t, "region"),
			Zone:             maybe.Draw(t, "zone"),
			CPUs:             job.CPUs(rapid.Int64Range(1, 1e6).Draw(t, "cpus")),
			Memory:           job.Bytes(rapid.Int64Range(1<<20, 1<<45).Draw(t, "memory")),
			Hourly:           job.Money(rapid.Int64Range(0, 1e9).Draw(t, "hourly")),
			Boot:             length.Draw(t, "boot"),
			BillingIncrement: length.Draw(t, "bills"),
			MinBilling:       length.Draw(t, "least"),
			MaxNodes:         rapid.IntRange(0, 100).Draw(t, "most"),
			Fake:             rapid.Bool().Draw(t, "fake"),
		}

		if rapid.Bool().Draw(t, "has GPUs") {
			o.GPU, o.GPUs = rapid.SampledFrom([]string{"H100", "RTX 4090", "null"}).
				Draw(t, "gpu"),
				rapid.IntRange(1, 64).
					Draw(t, "gpus")

			o.GPUMemory = job.Bytes(rapid.SampledFrom([]int64{0, 1 << 20, 80 << 30, 81559 << 20}).Draw(t, "size"))
			o.TFLOPS = rapid.SampledFrom([]float64{0, 0.1, 989.4}).Draw(t, "tflops")
		}

		kind := rapid.IntRange(0, 2).Draw(t, "kind")
		if kind != 1 {
			add(o)
		}

		if kind > 0 {
			o.Spot, o.Hourly = true, job.Money(rapid.Int64Range(0, 1e9).Draw(t, "spot"))
			o.LossRate = rapid.SampledFrom([]float64{0, 0.03, 1e-9}).Draw(t, "losses")
			add(o)
		}
	}

	return offers
}

func FuzzParseOffers(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("providers: [{provider: a, types: [{type: b, cpus: 1, memory: 1GB, spot: 1}]}]"))
	f.Add([]byte("providers:\n- &a {}\n- *a\n- <<: *a\n"))
	f.Add([]byte("providers: {a: b}\n--- \n"))
	f.Add(append([]byte("providers:\n"), fuzzing.Long([]byte("- {provider: a, typo: b}\n"))...))

	f.Fuzz(func(t *testing.T, text []byte) {
		defer fuzzing.Bounded(t)()

		offers, err := provision.ParseOffers("x", text)
		if err != nil {
			var list fault.List
			if !errors.As(err, &list) || len(list) == 0 || offers != nil {
				t.Fatalf("got %v with %d offers, want a list of mistakes alone", err, len(offers))
			}

			return
		}

		again, err := provision.ParseOffers("x", provision.WriteOffers(offers))
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, provision.WriteOffers(offers))
		}

		if diff := cmp.Diff(offers, again); diff != "" && len(offers) > 0 {
			t.Fatal(diff)
		}
	})
}
