package clouds

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"trainyard/internal/cli"
	"trainyard/internal/clock"
	"trainyard/internal/cloud/aws"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/gpuspec"
	"trainyard/internal/job"
	"trainyard/internal/provision"
)

// ImportCommand returns the command that writes a price file from a public price list.
func ImportCommand(env cli.Env) *cobra.Command {
	var from imports
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Make a price file from a catalogue or from a provider",
		Args:  cobra.NoArgs,
		Long: `Make a price file for --clouds and write it to standard output: from a file of SkyPilot's catalogue
(CSV, also .gz), or from Amazon's instance type, price and spot price APIs.

Review the file before you use it: every offer in it may be provisioned.`,
		Example: "  trainyard offers import --skypilot aws_gpu_vms.csv.gz --provider aws --region us-east-1 --gpu " +
			"A10G,A100 > offers-aws.yaml\n" +
			"  trainyard offers import --aws --region us-east-1 > offers-aws.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			offers, note, err := from.read(cmd.Context())
			if err != nil {
				return err
			}

			if note != "" {
				if _, err := fmt.Fprintln(env.Stderr, "note: "+note); err != nil {
					return err
				}
			}

			_, err = env.Stdout.Write(provision.WriteOffers(offers))

			return err
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&from.catalogue, "skypilot", "", "file of SkyPilot's catalogue")
	flags.BoolVar(&from.amazon, "aws", false, "query Amazon, with the credentials of this machine")
	flags.StringVar(
		&from.provider,
		"provider",
		"",
		"name of the provider in the price file (default: the first part of the file's name, or aws)",
	)

	flags.StringSliceVar(&from.regions, "region", nil, "only these regions")
	flags.StringSliceVar(&from.gpus, "gpu", nil, "only these GPUs")
	flags.StringVar(&from.boot, "boot", "4m", "time from provisioning a node until it can run jobs")

	return cmd
}

// imports is the source and selection of imported offers.
type imports struct {
	catalogue, provider, boot string
	amazon                    bool
	regions, gpus             []string
}

func (f *imports) read(ctx context.Context) ([]fleet.Offer, string, error) {
	boot, err := job.ParseDuration(f.boot)
	if err != nil {
		return nil, "", fault.New(fault.Invalid, "bad_flag", "%v", err).WithField("--boot")
	}

	switch {
	case f.amazon == (f.catalogue != ""):
		return nil, "", fault.New(fault.Invalid, "bad_flag", "name one source of offers").
			WithRemedy("use --skypilot FILE, or --aws")
	case f.amazon:
		return f.ask(ctx, boot)
	}

	return f.parse(boot)
}

// ask reads offers from the price API of Amazon.
func (f *imports) ask(ctx context.Context, boot job.Duration) ([]fleet.Offer, string, error) {
	name := f.provider
	if name == "" {
		name = "aws"
	}

	if len(f.regions) == 0 {
		return nil, "", fault.New(fault.Invalid, "bad_flag", "say in which regions").WithField("--region")
	}

	p, err := aws.New(ctx, aws.Config{Name: name, Yard: "import", Regions: f.regions})
	if err != nil {
		return nil, "", err
	}

	offers, err := p.Offers(ctx, aws.OfferFilter{Regions: f.regions, At: clock.Wall{}.Now()})
	for i := range offers {
		offers[i].Boot = boot
	}

	return f.only(offers), "", err
}

// kinds returns the requested GPUs.
func (f *imports) kinds() []job.GPUKind {
	list := make([]job.GPUKind, len(f.gpus))
	for i, g := range f.gpus {
		if list[i].UnmarshalText([]byte(g)) != nil {
			list[i].Model = g
		}
	}

	return list
}

// only keeps the offers with the requested GPUs.
func (f *imports) only(offers []fleet.Offer) []fleet.Offer {
	if len(f.gpus) == 0 {
		return offers
	}

	var kept []fleet.Offer
	for _, o := range offers {
		for _, g := range f.kinds() {
			if g.Matches(o.GPU, o.GPUMemory) {
				kept = append(kept, o)
				break
			}
		}
	}

	return kept
}

// parse reads a file of SkyPilot's catalogue.
func (f *imports) parse(boot job.Duration) (offers []fleet.Offer, note string, err error) {
	file, err := os.Open(f.catalogue)
	if err != nil {
		return nil, "", fault.New(fault.Invalid, "no_catalogue", "the catalogue cannot be read: %v", err).
			WithField("--skypilot")
	}

	defer func() { err = errors.Join(err, file.Close()) }()

	name := f.provider
	if name == "" {
		name, _, _ = strings.Cut(filepath.Base(f.catalogue), "_")
	}

	var text io.Reader = file
	if strings.HasSuffix(f.catalogue, ".gz") {
		text, err = gzip.NewReader(file)
		if err != nil {
			return nil, "", fault.New(fault.Invalid, "no_catalogue", "%s cannot be unpacked: %v", f.catalogue, err).
				WithField("--skypilot")
		}
	}

	offers, skipped, err := provision.SkyPilot(name, text, provision.Import{
		Regions: f.regions, GPUs: f.kinds(), Boot: boot, Memory: func(model string) job.Bytes {
			s, _ := gpuspec.Find(model, 0)
			return s.Memory
		},
	})
	if err != nil {
		return nil, "", err
	}

	if skipped.Total() > 0 {
		note = skipped.String()
	}

	return offers, note, nil
}
