package dataset_test

import (
	"encoding/json"
	"strings"
	"testing"

	"trainyard/internal/dataset"
	"trainyard/internal/job"
)

// mri is the dataset whose rule others must not lead around.
var mri = dataset.Dataset{ID: "mri", Rule: job.PlaceLocal, Source: "https://svc:secret@nas.example/sets/mri.tar?sig=1"}

func TestTheSameDataHasTheStrictestRule(t *testing.T) {
	t.Parallel()
	folder := dataset.Dataset{ID: "mri", Rule: job.PlaceLocal, Source: "/data/mri"}
	copied := dataset.Dataset{ID: "mri", Rule: job.PlaceLocal, Copies: []dataset.Copy{{Pool: "lab", Path: "/data/mri"}}}

	for _, tt := range []struct {
		name  string
		first dataset.Dataset
		other dataset.Dataset
		want  job.Place
	}{
		{"the same address", mri, dataset.Dataset{Source: mri.Source}, job.PlaceLocal},
		{"other credentials", mri, dataset.Dataset{Source: "https://nas.example/sets/mri.tar"}, job.PlaceLocal},
		{"another query", mri, dataset.Dataset{Source: "https://nas.example/sets/mri.tar?x=y"}, job.PlaceLocal},
		{"another scheme and port", mri, dataset.Dataset{Source: "http://NAS.example:80/sets/mri.tar"}, job.PlaceLocal},
		{"another spelling", mri, dataset.Dataset{Source: "https://nas.example/x/../sets//%6dri.tar"}, job.PlaceLocal},
		{"below it", mri, dataset.Dataset{Source: "https://nas.example/sets/mri.tar/1"}, job.PlaceLocal},
		{"an address above it", mri, dataset.Dataset{Source: "https://nas.example/sets"}, job.PlaceAny},
		{"another file", mri, dataset.Dataset{Source: "https://nas.example/sets/mri.tar2"}, job.PlaceAny},
		{"another host", mri, dataset.Dataset{Source: "https://nas2.example/sets/mri.tar"}, job.PlaceAny},
		{"the same path, copied", folder, dataset.Dataset{Source: "file:///data/mri"}, job.PlaceLocal},
		{"a path in it", folder, dataset.Dataset{Source: "/data/mri/2026/a"}, job.PlaceLocal},
		{"a path with it in it", folder, dataset.Dataset{Source: "/data"}, job.PlaceLocal},
		{"the root", folder, dataset.Dataset{Source: "/"}, job.PlaceLocal},
		{"a path that begins like it", folder, dataset.Dataset{Source: "/data/mri2"}, job.PlaceAny},
		{"a copy at its path", folder, dataset.Dataset{Copies: []dataset.Copy{{Node: "a", Path: "/data/mri"}}},
			job.PlaceLocal},
		{"the path of its copy", copied, dataset.Dataset{Source: "/data/mri/x"}, job.PlaceLocal},
		{"what agents have staged", folder,
			dataset.Dataset{Copies: []dataset.Copy{{Node: "a", Path: "/data/mri", Staged: true}}}, job.PlaceAny},
		{"no source", mri, dataset.Dataset{}, job.PlaceAny},
	} {
		c := dataset.NewCatalogue(dataset.DefaultNetwork())
		tt.other.ID, tt.other.Rule = "loot", job.PlaceAny
		loot := c.Put(tt.other)
		c.Put(tt.first)

		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}

		var read dataset.Catalogue
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}

		for where, c := range map[string]*dataset.Catalogue{"here": c, "in a snapshot": c.Snapshot(), "read again": &read} {
			if got := c.RuleOf(loot); got != tt.want {
				t.Errorf("%s, %s: %s, want %s", tt.name, where, got, tt.want)
			}

			if got, err := c.PlaceOf(job.PlaceAny, []string{"loot"}); got != tt.want || err != nil {
				t.Errorf("%s, %s: a job may run on %s nodes (%v), want %s", tt.name, where, got, err, tt.want)
			}
		}

		c.Put(dataset.Dataset{ID: "mri", Rule: job.PlaceLocal, Removed: true})

		if got := c.RuleOf(loot); got != job.PlaceAny {
			t.Errorf("%s: %s after the other was removed", tt.name, got)
		}
	}
}

func TestRulesOfTheSameDataThatExcludeEachOther(t *testing.T) {
	t.Parallel()
	c := dataset.NewCatalogue(dataset.DefaultNetwork())
	c.Put(mri)
	c.Put(dataset.Dataset{ID: "loot", Rule: job.PlaceCloud, Source: mri.Source})

	_, err := c.PlaceOf(job.PlaceAny, []string{"loot"})

	const want = "dataset loot may be used nowhere, by the rule of dataset mri, which has the same data"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestWhatGivesAccessToASourceIsRedacted(t *testing.T) {
	t.Parallel()

	for source, want := range map[string]string{
		"":                        "",
		"/data/mri?x":             "/data/mri?x",
		"file:///mnt/nas/mri":     "file:///mnt/nas/mri",
		"https://nas.example/mri": "https://nas.example/mri",
		"https://svc:s3cr3t@nas.example/a@b?X-Amz-Signature=abc#sha256=00": "https://REDACTED@nas.example/a@b?REDACTED#sha256=00",
		"https://token@nas.example":                                        "https://REDACTED@nas.example",
		"https://a@b@nas.example?c":                                        "https://REDACTED@nas.example?REDACTED",
	} {
		if got := dataset.Redacted(source); got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
	}
}
