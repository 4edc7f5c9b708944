package clouds

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/fleet"
	"trainyard/internal/yamlfile"
	"trainyard/internal/yardmaster"
)

func TestWarmEntriesAreReadOrRefused(t *testing.T) {
	t.Parallel()

	for text, says := range map[string]string{
		"{gpu: T4, nodes: 2, look_back: 30m, max_hourly: $3}": "",
		"{nodes: 1}":                    "",
		"{gpu: T4}":                     "nodes must be at least 1, got 0",
		"{gpu: H100, nodes: 1}":         "no offer is left for entry 1",
		"{nodes: 1, max_hourly: $0.50}": "max_hourly of entry 1 is $0.50/h",
		"{offer: other/t4, nodes: 1}":   "no offer is left for entry 1",
	} {
		var c Clouds
		if err := yamlfile.Decode([]byte("provision: {warm: ["+text+"]}\n"), &c).Err(); err != nil {
			t.Fatal(err)
		}

		y := yardmaster.Defaults(nil)
		y.Offers = []fleet.Offer{{Name: "cloud/t4", GPU: "T4", GPUs: 1, GPUMemory: 16 << 30, Hourly: 1e6}}

		err := c.Terms(&y)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}

	c := Clouds{}
	if err := yamlfile.Decode([]byte("provision: {warm: [{gpu: T4, nodes: 2, max_hourly: $3}]}\n"), &c).Err(); err != nil {
		t.Fatal(err)
	}

	y := yardmaster.Defaults(nil)
	y.Offers = []fleet.Offer{{Name: "cloud/t4", GPU: "T4", GPUs: 1, GPUMemory: 16 << 30, Hourly: 1e6}}

	if err := c.Terms(&y); err != nil {
		t.Fatal(err)
	}

	if w := y.Keep.Warm[0]; w.Nodes != 2 || w.GPU.Model != "T4" || w.LookBack != 2*time.Hour || w.MaxHourly != 3e6 {
		t.Errorf("read %+v", w)
	}
}
