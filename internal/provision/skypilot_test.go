package provision_test

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/provision"
	"trainyard/test/fuzzing"
)

const header = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone\n"

func TestACatalogueRowBecomesOffers(t *testing.T) {
	t.Parallel()
	text := header + `p5.48xlarge,H100-SXM,8.0,192.0,2048.0,"{'Gpus': [{'Name': 'H100', 'Manufacturer': None, 'Count': 8, 'Ok': True, 'MemoryInfo': {'SizeInMiB': 81920}}], 'TotalGpuMemoryInMiB': 655360}",55.04,20.284900,us-east-1,use1-az1` + "\n"

	opt := provision.Import{
		Boot:             job.Duration(time.Minute),
		BillingIncrement: job.Duration(time.Second),
		MinBilling:       job.Duration(time.Hour),
		LossRate:         0.1,
	}

	got, skipped, err := provision.SkyPilot("aws", strings.NewReader(text), opt)
	if err != nil || skipped.Total() != 0 {
		t.Fatalf("skipped %v, error %v", skipped, err)
	}

	onDemand := fleet.Offer{
		Name:             "aws/p5.48xlarge/us-east-1/use1-az1",
		Provider:         "aws",
		Type:             "p5.48xlarge",
		Region:           "us-east-1",
		Zone:             "use1-az1",
		GPU:              "H100",
		GPUs:             8,
		GPUMemory:        80 * gib,
		CPUs:             192_000,
		Memory:           2048 * gib,
		Hourly:           55_040_000,
		Boot:             opt.Boot,
		BillingIncrement: opt.BillingIncrement,
		MinBilling:       opt.MinBilling,
	}

	spot := onDemand
	spot.Name = onDemand.Name + "/spot"
	spot.Spot = true
	spot.Hourly = 20_284_900
	spot.LossRate = 0.1
	if diff := cmp.Diff([]fleet.Offer{onDemand, spot}, got); diff != "" {
		t.Error(diff)
	}
}

func TestRowsThatCannotBeProvisionedAreCounted(t *testing.T) {
	t.Parallel()
	rows := []string{
		`,A100,1,,,{'Gpus': [{'MemoryInfo': {'SizeInMiB': 40960}}]},3.1,1.8,r,z`,
		`inf1,Inferentia,1.0,4,8,,0.2,,r,z`,
		`tpu,tpu-v4-8,1,4,8,tpu-v4-8,0.2,,r,z`,
		`g6f,L4,0.125,4,8,L4,0.2,,r,z`,
		`x,L4,0,4,8,L4,0.2,,r,z`,
		`x,L4,-1,4,8,L4,0.2,,r,z`,
		`x,L4,many,4,8,L4,0.2,,r,z`,
		`x,L4,65,4,8,L4,0.2,,r,z`,
		`x,L4,NaN,4,8,L4,0.2,,r,z`,
		`x,L4,1,,8,L4,0.2,,r,z`,
		`x,L4,1,4,,L4,0.2,,r,z`,
		`x,L4,1,four,8,L4,0.2,,r,z`,
		`x,L4,1,4,8,L4,,,r,z`,
		`x,L4,1,4,8,L4,0,0.00,r,z`,
		`x,L4,1,4,8,L4,cheap,,r,z`,
		`x/y,L4,1,4,8,L4,1,,r,z`,
		`x,L4:24GB,1,4,8,L4,1,,r,z`,
		`x,L4,1,4,8,{'Gpus': [,1,,r,z`,
		`x,L4,1,4,8,"{'Gpus': [{'Name': 'L4'}, {'Name': 'T4'}]}",1,,r,z`,
		`x,L4,1,4,8,L4,1,,elsewhere,z`,
		`x,T4,1,4,8,T4,1,,r,z`,
		`x,L4,1,4,8,L4,1,0.5,r,z`,
		`x,L4,1,4,8,L4,1,0.5,r,z`,
	}

	opt := provision.Import{Regions: []string{"r"}, GPUs: []job.GPUKind{{Model: "L4"}}}
	got, skipped, err := provision.SkyPilot("aws", strings.NewReader(header+strings.Join(rows, "\n")), opt)
	if err != nil {
		t.Fatal(err)
	}

	want := provision.Skipped{
		"no host machine": 1, "accelerator is not a GPU": 2, "fraction of a GPU": 1,
		"invalid row": 10, "CPUs or memory missing": 2, "no price": 2, "several GPU models": 1,
		"region not selected": 1, "GPU not selected": 1, "duplicate of an earlier row": 1,
	}

	if diff := cmp.Diff(want, skipped); diff != "" {
		t.Error(diff)
	}

	if len(got) != 2 || skipped.Total()+1 != len(rows) {
		t.Errorf("got %d offers and %d of %d rows skipped", len(got), skipped.Total(), len(rows))
	}

	if words := skipped.String(); !strings.HasPrefix(words, "10: invalid row; 2: ") {
		t.Errorf("the words are %q", words)
	}
}

func TestMemoryOfOneGPUIsFoundWhateverTheCatalogueMeans(t *testing.T) {
	t.Parallel()
	known := func(model string) job.Bytes {
		if model == "K80" {
			return 12 * gib
		}

		return 0
	}

	for name, c := range map[string]struct {
		rows string
		want job.Bytes // of the last row's GPU
	}{
		"of one GPU":                      {"a,H100,1,1,1,{'Gpus':[{'MemoryInfo':{'SizeInMiB':81920}}]},1,,r,\nb,H100,8,1,1,{'Gpus':[{'MemoryInfo':{'SizeInMiB':81920}}]},1,,r,", 80 * gib},
		"of all GPUs":                     {"a,H100,1,1,1,{'Gpus':[{'MemoryInfo':{'SizeInMiB':81920}}]},1,,r,\nb,H100,8,1,1,{'Gpus':[{'MemoryInfo':{'SizeInMiB':655360}}]},1,,r,", 80 * gib},
		"of all, as the others show":      {"a,H100,1,1,1,{'Gpus':[{'MemoryInfo':{'SizeInMiB':81559}}]},1,,r,\nb,H100,2,1,1,{'Gpus':[{'MemoryInfo':{'SizeInMiB':163118}}]},1,,r,\nc,A100,2,1,1,{'Gpus':[{'MemoryInfo':{'SizeInMiB':81920}}]},1,,r,", 40 * gib},
		"of one where nothing tells":      {"a,A100,8,1,1,{'Gpus':[{'MemoryInfo':{'SizeInMiB':40960}}]},1,,r,", 40 * gib},
		"in GiB":                          {"a,L4,1,1,1,{'Gpus':[{'MemoryInfo':{'SizeInMiB':24}}]},1,,r,", 24 * gib},
		"in the name":                     {"a,RTX PRO 6000 96GB,2,1,1,{'Gpus':[{'MemoryInfo':{'SizeInMiB':0}}]},1,,r,", 96 * gib},
		"in the name of a bare GPU":       {"a,A100-80GB,2,1,1,A100-80GB,1,,r,", 80 * gib},
		"by what is known of the model":   {"a,K80,2,1,1,K80,1,,r,", 12 * gib},
		"not at all":                      {"a,M60,2,1,1,M60,1,,r,", 0},
		"in a mapping without a GPU list": {"a,M60,2,1,1,{},1,,r,", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, skipped, err := provision.SkyPilot("x", strings.NewReader(header+c.rows), provision.Import{Memory: known})
			if err != nil || skipped.Total() > 0 || len(got) == 0 {
				t.Fatalf("got %d offers, skipped %v, error %v", len(got), skipped, err)
			}

			if last := got[len(got)-1]; last.GPUMemory != c.want {
				t.Errorf("got %s, want %s", last.GPUMemory, c.want)
			}
		})
	}
}

func TestGPUsAreNamedAsTheirDriversDo(t *testing.T) {
	t.Parallel()

	for name, want := range map[string]string{
		"H100": "H100", "H100-SXM": "H100", "H100-NVLINK": "H100", "H100-MEGA": "H100", "H100-NVL": "H100 NVL",
		"A100-80GB": "A100 80GB", "A100-80GB-SXM": "A100 80GB", "A100-80G-PCIe": "A100 80GB PCIe", "V100-32GB": "V100 32GB",
		"RTX4090": "RTX 4090", "RTX6000-Ada": "RTX 6000 Ada", "RTX6000Ada": "RTX 6000 Ada", "RTXA6000": "RTX A6000", "A6000": "RTX A6000",
		"RTX-A4000": "RTX A4000", "RTXPRO6000": "RTX PRO 6000", "RTXPRO6000WS": "RTX PRO 6000", "RTX PRO 4500": "RTX PRO 4500", "A10G": "A10G", "T4g": "T4g",
	} {
		text := header + "a," + name + ",1,1,1,bare,1,,r,"
		got, _, err := provision.SkyPilot("x", strings.NewReader(text), provision.Import{})
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: got %d offers, %v", name, len(got), err)
		}

		if got[0].GPU != want {
			t.Errorf("%s is %q, want %q", name, got[0].GPU, want)
		}
	}
}

func TestACatalogueThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct{ cloud, text, code string }{
		"a name that is none":  {"A WS", header, "bad_value"},
		"nothing":              {"aws", "", "bad_catalogue"},
		"a column is missing":  {"aws", "InstanceType,Price\n", "bad_catalogue"},
		"a row is too long":    {"aws", header + strings.Repeat("x,", 30) + "\n", "bad_catalogue"},
		"a quote is not ended": {"aws", header + `"x`, "bad_catalogue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := provision.SkyPilot(c.cloud, strings.NewReader(c.text), provision.Import{})

			var e *fault.Error
			if !errors.As(err, &e) || e.Code != c.code || e.Kind != fault.Invalid {
				t.Errorf("got %v, want %s", err, c.code)
			}
		})
	}
}

// catalogues returns the folder of the shared catalogues, or skips the test.
func catalogues(t *testing.T) string {
	t.Helper()
	root := os.Getenv("TRAINYARD_DATA")
	if root == "" {
		root = "../../../shared/data"
	}

	dir := filepath.Join(root, "cloud-prices")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the shared data are not there: %v", err)
	}

	return dir
}

// catalogue returns the text of a catalogue.
func catalogue(t *testing.T, path string) string {
	t.Helper()
	packed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	var r io.Reader = bytes.NewReader(packed)
	if strings.HasSuffix(path, ".gz") {
		r, err = gzip.NewReader(r)
		if err != nil {
			t.Fatal(err)
		}
	}

	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

// metadata returns what common_metadata.csv says of the memory of GPUs.
func metadata(t *testing.T) map[string]job.Bytes {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(catalogue(t, filepath.Join(catalogues(t), "common_metadata.csv")))).
		ReadAll()
	if err != nil {
		t.Fatal(err)
	}

	known := map[string]job.Bytes{}

	for _, row := range rows[1:] {
		gb, err := strconv.Atoi(row[1])
		if err != nil {
			t.Fatal(err)
		}

		// The same names as in offers: one row tells how a model is written there.
		got, _, err := provision.SkyPilot("x", strings.NewReader(header+"a,"+row[0]+",1,1,1,bare,1,,r,"), provision.Import{})
		if err != nil || len(got) != 1 {
			t.Fatalf("%s: %v", row[0], err)
		}

		known[got[0].GPU] = job.Bytes(gb) << 30
	}

	return known
}

func TestEveryRowOfTheSharedCataloguesIsAccountedFor(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(catalogues(t), "*_gpu_vms.csv*"))
	if err != nil || len(files) != 24 {
		t.Fatalf("found %d catalogues, want 24: %v", len(files), err)
	}

	known := metadata(t)

	// The table says 80 GB of these, which is too little; and these clouds sell another card, or one with
	// more memory, under a name that is in the table.
	wrong := map[string]bool{
		"B200":            true,
		"GH200":           true,
		"H200":            true,
		"H100 NVL":        true,
		"cudo/A100":       true,
		"mithril/A100":    true,
		"seeweb/A100":     true,
		"vast/A100":       true,
		"vast/H100":       true,
		"vast/RTX 3060":   true,
		"nebius/RTX 6000": true,
	}

	// What is known of a few clouds: rows, offers, skipped.
	want := map[string][3]int{
		"aws":     {2457, 3769, 375 + 155 + 5 + 1},
		"gcp":     {2508, 0, 2508},
		"vast":    {64, 64, 0},
		"mithril": {6, 12, 0},
		"runpod":  {11376, 22752, 0},
		"verda":   {15, 22, 0},
	}

	compared := 0

	for _, file := range files {
		cloud, _, _ := strings.Cut(filepath.Base(file), "_")
		text := catalogue(t, file)
		rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil {
			t.Fatal(err)
		}

		offers, skipped, err := provision.SkyPilot(
			cloud,
			strings.NewReader(text),
			provision.Import{Memory: func(m string) job.Bytes { return known[m] }},
		)
		if err != nil {
			t.Fatalf("%s: %v", cloud, err)
		}

		provisioned, seen := map[string]bool{}, map[string]bool{}
		for _, o := range offers {
			provisioned[strings.TrimSuffix(o.Name, "/spot")] = true

			if seen[o.Name] || o.Hourly <= 0 || o.GPUs < 1 || o.CPUs < 1 || o.Memory < 1 {
				t.Errorf("%s: %+v is twice or says too little", cloud, o)
			}

			seen[o.Name] = true

			if o.GPUMemory == 0 {
				t.Errorf("%s: the memory of %s is not known", cloud, o.GPU)
			}

			if size := known[o.GPU]; size > 0 && !wrong[o.GPU] && !wrong[cloud+"/"+o.GPU] {
				compared++

				if ratio := float64(o.GPUMemory) / float64(size); ratio < 0.9 || ratio > 1.1 {
					t.Errorf("%s: %s has %s, want about %s", cloud, o.Name, o.GPUMemory.Short(), size)
				}
			}
		}

		if got := len(provisioned) + skipped.Total(); got != len(rows)-1 {
			t.Errorf(
				"%s: %d rows are offers and %d are skipped (%s), want %d in all",
				cloud,
				len(provisioned),
				skipped.Total(),
				skipped,
				len(rows)-1,
			)
		}

		if w, ok := want[cloud]; ok {
			if diff := cmp.Diff(w, [3]int{len(rows) - 1, len(offers), skipped.Total()}); diff != "" {
				t.Errorf("%s: %s %s", cloud, diff, skipped)
			}
		}
	}

	if compared < 10_000 {
		t.Errorf("only %d offers were compared with what is known of their memory", compared)
	}
}

func TestKnownPricesOfTheSharedCatalogues(t *testing.T) {
	t.Parallel()
	offers := map[string]fleet.Offer{}
	for _, name := range []string{"aws_gpu_vms.csv.gz", "vast_gpu_vms.csv", "primeintellect_gpu_vms.csv", "lambda_gpu_vms.csv", "nebius_gpu_vms.csv"} {
		cloud, _, _ := strings.Cut(name, "_")

		got, _, err := provision.SkyPilot(
			cloud,
			strings.NewReader(catalogue(t, filepath.Join(catalogues(t), name))),
			provision.Import{},
		)
		if err != nil {
			t.Fatal(err)
		}

		for _, o := range got {
			offers[o.Name] = o
		}
	}

	for name, want := range map[string]struct {
		gpu  string
		gpus int
		size job.Bytes
		rent job.Money
	}{
		"aws/p5.48xlarge/us-east-1/use1-atl2-az1":                           {"H100", 8, 80 * gib, 55_040_000},
		"aws/p5.48xlarge/us-east-1/use1-atl2-az1/spot":                      {"H100", 8, 80 * gib, 20_284_900},
		"aws/g4dn.xlarge/us-east-1/use1-az1":                                {"T4", 1, 16 * gib, 526_000},
		"nebius/gpu-h100-sxm_8gpu-128vcpu-1600gb/eu-north1/spot":            {"H100", 8, 80 * gib, 17_200_000},
		"primeintellect/lambdalabs__8xA100_80GB__240__1800/US/us-midwest-1": {"A100 80GB", 8, 80 * gib, 14_320_000},
		"lambda/gpu_8x_v100_n/me-west-1":                                    {"V100", 8, 16 * gib, 6_320_000},
	} {
		o, ok := offers[name]
		if !ok {
			t.Errorf("there is no offer %s", name)
			continue
		}

		if o.GPU != want.gpu || o.GPUs != want.gpus || o.GPUMemory != want.size || o.Hourly != want.rent {
			t.Errorf("%s has %d x %s of %s for %s", name, o.GPUs, o.GPU, o.GPUMemory, o.Hourly)
		}
	}
}

func FuzzSkyPilot(f *testing.F) {
	f.Add(
		header + "p5,H100,8.0,192.0,2048.0,\"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 81920}}]}\",55.04,20.28,us-east-1,z\n",
	)
	f.Add(
		header + "a,L4,1,1,1,\"{\"\"Gpus\"\":[{\"\"Name\"\":\"\"L\\\\4\"\",\"\"MemoryInfo\"\":{\"\"SizeInMiB\"\":24}},]}\",1,,r,\n",
	)
	f.Add(header + ",A100,1,,,{'Gpus': [{'MemoryInfo': {'SizeInMiB': nan}}]},1e3,-1,\", CA\",\n")

	f.Fuzz(func(t *testing.T, text string) {
		defer fuzzing.Bounded(t)()

		offers, skipped, err := provision.SkyPilot("x", strings.NewReader(text), provision.Import{})
		if err != nil {
			if len(offers) > 0 || skipped != nil {
				t.Fatal("an error came with offers")
			}

			return
		}

		if len(offers) > 5000 {
			return
		}

		again, err := provision.ParseOffers("x", provision.WriteOffers(offers))
		if err != nil {
			t.Fatalf("what was imported is no price file: %v\n%s", err, provision.WriteOffers(offers))
		}

		if diff := cmp.Diff(offers, again); diff != "" && len(offers) > 0 {
			t.Fatal(diff)
		}
	})
}
