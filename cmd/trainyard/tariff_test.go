package main

import (
	"strings"
	"testing"

	"trainyard/internal/fleet"
)

func TestATariffIsReadOrRefused(t *testing.T) {
	t.Parallel()
	good := "energy: 0.25\npue: 1.3\nnodes:\n- {gpu: A100, watts: [300, 700, 1000], off: true, boot: 3m}\n- {class: ondemand, hourly: [4.1]}\n"
	tariff, err := parseTariff("t.yaml", []byte(good))
	if err != nil || tariff.Energy != 0.25 || len(tariff.Nodes) != 2 || tariff.Nodes[0].Boot.String() != "3m" ||
		tariff.Nodes[1].Class != fleet.OnDemand {
		t.Fatalf("the tariff is %+v, %v", tariff, err)
	}

	for name, tc := range map[string]struct{ text, says string }{
		"a key nobody knows": {"energie: 0.2\nnodes: [{gpu: A100}]\n", "line 1, column 1: energie: unknown key (did you mean energy?)"},
		"no lines":           {"energy: 0.2\n", "nodes: must have at least one entry"},
		"nothing":            {"", "the file is empty"},
		"a price below zero": {"energy: -1\nnodes: [{gpu: A100}]\n", "-1"},
		"power below zero":   {"nodes: [{watts: [-5]}]\n", "-5"},
		"an unknown class":   {"nodes:\n  - class: local\n  - class: cloud\n", `line 3, column 12: nodes[1].class: must be one of local, reserved, ondemand, got "cloud"`},
		"a bad kind":         {"nodes: [{gpu: 'A100:much'}]\n", "line 1, column 15: nodes[0].gpu"},
	} {
		if _, err := parseTariff("t.yaml", []byte(tc.text)); err == nil || !strings.Contains(err.Error(), tc.says) ||
			!strings.Contains(err.Error(), "t.yaml") {
			t.Errorf("%s: %v, want it to name the file and %q", name, err, tc.says)
		}
	}

	if tariff, err := readTariff(""); tariff != nil || err != nil {
		t.Errorf("without a file the tariff is %v, %v", tariff, err)
	}
}
