package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fleet"
)

func TestTheHeaderOfAnAgentIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	want := fleet.Agent{Process: "p1", Machine: "m&1", Boot: "b=1", Folder: "801:2", Started: 90 * time.Second,
		Host: "gpu-1", Path: "/var/lib/train yard/ä"}

	got, err := api.ParseAgent(api.FormatAgent(&want))
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestALongOrStrangePathDoesNotKeepAnAgentOut(t *testing.T) {
	t.Parallel()

	for _, path := range []string{"/" + strings.Repeat("ä", 300), "/data\n1", "/\xff\xfe"} {
		got, err := api.ParseAgent(api.FormatAgent(&fleet.Agent{Process: "p", Path: path}))
		if err != nil || got.Path == "" {
			t.Errorf("%.20q: %v, %v", path, got, err)
		}
	}
}

func TestHeadersOfAgentsThatAreRefused(t *testing.T) {
	t.Parallel()

	if agent, err := api.ParseAgent(""); agent != nil || err != nil {
		t.Errorf("without the header: %v, %v", agent, err)
	}

	if _, err := api.ParseAgent("process=p&started=1&later=yes"); err != nil {
		t.Errorf("a part that a newer agent adds: %v", err)
	}

	for _, header := range []string{
		"%zz", "process=p", "started=1", "process=p&started=soon", "process=p&process=q&started=1",
		"process=p&started=1&host=a%0Ab", "process=p&started=1&path=" + strings.Repeat("x", 257),
	} {
		if _, err := api.ParseAgent(header); err == nil {
			t.Errorf("%.60q is accepted", header)
		}
	}
}
