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

	for _, text := range []string{
		"nodes: [{class: local, gpu: A100}, {class: local}]", "nodes: [{gpu: 'A100:40GB'}, {gpu: 'A100:80GB'}, {gpu: A100}]",
		"nodes: [{class: local}, {gpu: A100}]",
	} {
		if _, err := parseTariff("t.yaml", []byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}

	for name, tc := range map[string]struct{ text, says string }{
		"a key nobody knows": {"energie: 0.2\nnodes: [{gpu: A100}]\n", "line 1, column 1: energie: unknown key (did you mean energy?)"},
		"no lines":           {"energy: 0.2\n", "nodes: must have at least one entry"},
		"nothing":            {"", "the file is empty"},
		"a price below zero": {"energy: -1\nnodes: [{gpu: A100}]\n", "-1"},
		"power below zero":   {"nodes: [{watts: [-5]}]\n", "-5"},
		"an unknown class":   {"nodes:\n  - class: local\n  - class: cloud\n", `line 3, column 12: nodes[1].class: must be one of local, reserved, ondemand, got "cloud"`},
		"boot without off":   {"nodes: [{gpu: A100, boot: 3m}]\n", "nodes[0].boot: applies only to nodes that are switched off when idle"},
		"a row in vain":      {"nodes:\n- {class: local, hourly: [1]}\n- {class: local, gpu: A100, hourly: [2]}\n", "line 3, column 3: nodes[1]: never applies: nodes[0] matches"},
		"a kind in vain":     {"nodes:\n- {gpu: A100}\n- {gpu: 'A100:80GB', class: reserved}\n", "nodes[1]: never applies"},
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
