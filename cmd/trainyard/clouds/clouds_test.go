package clouds

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"trainyard/internal/job"
)

// configOf returns the adapter's configuration for a provider.
func configOf(t *testing.T, c *cloudProvider) any {
	t.Helper()

	p := &Provisioner{Options: Options{Clouds: &Clouds{folder: "/etc"}}, yard: "yard"}
	switch c.Kind {
	case "aws":
		return p.awsConfig(c)
	case "openstack":
		return openstackOptions(c)
	}

	o, err := p.processConfig(c)
	if err != nil {
		t.Fatal(err)
	}

	return o
}

// sample is a value of a type that is not its zero value.
func sample(t *testing.T, of reflect.Type) reflect.Value {
	t.Helper()

	for _, v := range []any{
		"x", []string{"x"}, map[string]string{"x": "y"}, map[string]int{"x": 7}, 7, 7.5, true, uint64(7), job.Duration(7),
	} {
		if reflect.TypeOf(v) == of {
			return reflect.ValueOf(v)
		}
	}

	t.Fatalf("no sample of a %s", of)

	return reflect.Value{}
}

func TestEveryKeyOfAProviderIsUsedOrRefused(t *testing.T) {
	for field := range reflect.TypeFor[cloudProvider]().Fields() {
		key, kinds := field.Tag.Get("yaml"), field.Tag.Get("kinds")
		if slices.Contains([]string{"kind", "offers", "data_roots"}, key) {
			continue // they choose the adapter and the price file, and set up the agents of all kinds of machines
		}

		for _, kind := range providerKinds {
			c := &cloudProvider{Name: "n", Kind: kind}
			before := configOf(t, c)
			reflect.ValueOf(c).Elem().FieldByName(field.Name).Set(sample(t, field.Type))
			changes := !reflect.DeepEqual(before, configOf(t, c))

			applies := kinds == "" || slices.Contains(strings.Split(kinds, ","), kind)
			if changes != applies {
				t.Errorf("%s of a provider of kind %s: changes its configuration %t, documented %t", key, kind, changes, applies)
			}
		}
	}
}

func TestKeysOfAnotherKindAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		return path
	}

	write("prices.yaml", "providers: [{provider: p, types: [{type: t, cpus: 1, memory: 1GB, hourly: $1}]}]\n")

	for _, c := range []struct{ text, says string }{
		{"kind: aws, quota: 3", "line 1, column 62: providers[0].quota: applies to providers of kind process only, " +
			"this one is of kind aws"},
		{"kind: process, dir: m, regions: []", "regions: applies to providers of kind aws or openstack only"},
		{"kind: openstack, spot_max: 0", "spot_max: applies to providers of kind aws only"},
		{"kind: azure", `kind: must be aws, openstack or process, got "azure"`},
		{"dir: m", `kind: must be aws, openstack or process, got ""`},
		{"kind: process, dir: m, quota: 3", ""},
	} {
		path := write("clouds.yaml", "providers: [{name: p, offers: prices.yaml, "+c.text+"}]\n")

		_, offers, err := ReadClouds(path)
		switch {
		case c.says == "" && (err != nil || len(offers) != 1):
			t.Errorf("%s: refused with %v", c.text, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: got %v, want %q", c.text, err, c.says)
		}
	}
}
