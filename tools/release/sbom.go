package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// The SBOM is made here and not by cyclonedx-gomod: it lists exactly what is linked into the binary, as
// `go version -m` shows it, it needs no tool from elsewhere, and it has no random serial number and
// no time of its making, so that it can be rebuilt bit by bit.

// sbom is a bill of materials in CycloneDX 1.5, as far as we use it.
type sbom struct {
	Format       string       `json:"bomFormat"`
	SpecVersion  string       `json:"specVersion"`
	Version      int          `json:"version"`
	Metadata     metadata     `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"` // of the commit
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// sbomOf reads what was linked into a binary and writes it as CycloneDX JSON.
func sbomOf(binary string, r *release) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read what was linked: %w", err)
	}

	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read the binary: %w", err)
	}

	digest := sha256.Sum256(content)

	return encodeSBOM(info, hex.EncodeToString(digest[:]), r)
}

// encodeSBOM writes the modules of a build, the standard library among them.
func encodeSBOM(info *debug.BuildInfo, digest string, r *release) ([]byte, error) {
	root := moduleRef(info.Main.Path, r.Version)
	bill := sbom{
		Format: "CycloneDX", SpecVersion: "1.5", Version: 1,
		Metadata: metadata{
			Timestamp: r.Time.Format(time.RFC3339),
			Component: component{
				Type: "application", Ref: root, Name: info.Main.Path, Version: r.Version, PURL: root,
				Hashes: []hash{{"SHA-256", digest}},
				Properties: []property{
					{"trainyard:commit", r.Commit},
					{"trainyard:GOOS", setting(info, "GOOS")},
					{"trainyard:GOARCH", setting(info, "GOARCH")},
				},
			},
		},
	}

	library := strings.TrimPrefix(info.GoVersion, "go")
	bill.Components = append(bill.Components, component{
		Type: "library", Ref: moduleRef("std", library), Name: "std", Version: library, PURL: moduleRef("std", library),
	})

	for _, module := range info.Deps {
		used := module
		if module.Replace != nil {
			used = module.Replace
		}

		hashes, err := moduleHash(used.Sum)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", used.Path, err)
		}

		ref := moduleRef(used.Path, used.Version)
		bill.Components = append(bill.Components, component{
			Type: "library", Ref: ref, Name: used.Path, Version: used.Version, PURL: ref, Hashes: hashes,
		})
	}

	// A binary knows what it is made of, not which module asked for which.
	all := dependency{Ref: root}
	for _, c := range bill.Components {
		all.DependsOn = append(all.DependsOn, c.Ref)
	}

	bill.Dependencies = []dependency{all}

	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")

	if err := encoder.Encode(bill); err != nil {
		return nil, fmt.Errorf("encode the SBOM: %w", err)
	}

	return out.Bytes(), nil
}

// moduleRef is the package URL of a Go module.
func moduleRef(path, version string) string {
	return "pkg:golang/" + path + "@" + version
}

// moduleHash is the digest of go.sum, whose h1 is a SHA-256 in base64.
func moduleHash(sum string) ([]hash, error) {
	if sum == "" {
		return nil, nil
	}

	encoded, ok := strings.CutPrefix(sum, "h1:")
	if !ok {
		return nil, fmt.Errorf("unknown kind of checksum %q", sum)
	}

	digest, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("checksum %q: %w", sum, err)
	}

	return []hash{{"SHA-256", hex.EncodeToString(digest)}}, nil
}

// setting is a build setting by name, "" if it was not recorded.
func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}

	return ""
}
