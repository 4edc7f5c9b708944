package container

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"

	"trainyard/internal/humanize"
	"trainyard/internal/job"
)

// Image is an image that the engine has.
type Image struct {
	Name   string   // as the job file has it
	ID     string   // with the engine
	Digest string   // name and digest, by which every node gets the same image
	Env    []string // that programs in it expect
	size   job.Bytes
}

// ImageError says why an image cannot be used here.
type ImageError struct {
	Image string
	Text  string
	err   error
}

// Error returns the sentence for people.
func (e *ImageError) Error() string { return fmt.Sprintf("image %s: %s", e.Image, e.Text) }

// Unwrap returns the cause.
func (e *ImageError) Unwrap() error { return e.err }

// Pull says which image is wanted, and who wants it.
type Pull struct {
	Image string
	// Secret is the name of the secret that the job has for its registry, "" if it has none and the node's own
	// credentials are used, and Auth its value: user and password with a colon between them.
	Secret, Auth string
}

// Pull fetches an image. One that is there is asked for all the same: whoever may not have it from its registry must
// not have it from here, and a name may mean another image now. It calls progress with how far it is.
func (e *Engine) Pull(ctx context.Context, p Pull, progress func(words string)) (Image, error) {
	name := p.Image

	ref, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return Image{}, &ImageError{name, "its name is not valid: " + err.Error(), err}
	}

	auth, err := e.credentialsFor(p, ref)
	if err != nil {
		return Image{}, &ImageError{name, err.Error(), err}
	}

	progress("pulling image " + name)

	if err := e.pull(ctx, name, auth, progress); err != nil {
		if ctx.Err() != nil {
			return Image{}, ctx.Err()
		}

		return Image{}, e.explain(p, ref, auth != "", err)
	}

	found, err := e.cli.ImageInspect(ctx, name)
	if err != nil {
		return Image{}, &ImageError{name, "it was pulled and cannot be read: " + err.Error(), err}
	}

	if found.Os != "linux" || found.Architecture != runtime.GOARCH {
		return Image{}, &ImageError{Image: name, Text: fmt.Sprintf("it is for %s/%s, and this node is linux/%s", found.Os,
			found.Architecture, runtime.GOARCH)}
	}

	img := Image{Name: name, ID: found.ID, Digest: digestOf(ref, found.RepoDigests, found.ID), size: job.Bytes(found.Size)}
	if found.Config != nil {
		img.Env = found.Config.Env
	}

	return img, e.images.use(img, e.opt.Clock.Now())
}

// digestOf returns the name under which every node gets the same image.
func digestOf(ref reference.Named, digests []string, id string) string {
	repository := reference.TrimNamed(ref).Name()

	for _, d := range digests {
		parsed, err := reference.ParseNormalizedNamed(d)
		if err == nil && reference.TrimNamed(parsed).Name() == repository {
			return d
		}
	}

	return repository + "@" + id
}

// pull lets the engine pull an image and passes on how far it is.
func (e *Engine) pull(ctx context.Context, name, auth string, progress func(string)) error {
	if err := e.askRegistry(ctx, name, auth); err != nil {
		return err
	}

	stream, err := e.cli.ImagePull(ctx, name, client.ImagePullOptions{RegistryAuth: auth})
	if err != nil {
		return err
	}

	layers := layers{}
	for m, err := range stream.JSONMessages(ctx) {
		if err != nil {
			return err
		}
		if m.Error != nil {
			return m.Error
		}

		if words := layers.take(m); words != "" {
			progress("pulling image " + name + ": " + words)
		}
	}

	return nil
}

// askRegistry makes sure that the registry of an image is asked for it. Podman always does so, and Docker unless the
// image is named by a digest and was pulled before, maybe by somebody else.
func (e *Engine) askRegistry(ctx context.Context, name, auth string) error {
	if !strings.Contains(name, "@") {
		return nil
	}

	version, err := e.cli.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil || isPodman(version) {
		return err
	}

	_, err = e.cli.DistributionInspect(ctx, name, client.DistributionInspectOptions{EncodedRegistryAuth: auth})

	return err
}

// layers is how far the parts of an image are, by their ids.
type layers map[string]jsonstream.Progress

// take notes what an engine says, and returns how far all of them are; "" if it does not say.
func (l layers) take(m jsonstream.Message) string {
	if m.ID == "" || m.Progress == nil || m.Progress.Total <= 0 {
		return ""
	}

	l[m.ID] = *m.Progress

	var have, all job.Bytes
	for _, p := range l {
		have += job.Bytes(min(p.Current, p.Total))
		all += job.Bytes(p.Total)
	}

	return fmt.Sprintf("%s of %s", humanize.Size(have), humanize.Size(all))
}

// explain says in words for people why an image could not be pulled. Engines pass on what registries and disks say, in
// words of their own.
func (e *Engine) explain(p Pull, ref reference.Named, authorised bool, err error) error {
	text := strings.ToLower(err.Error())
	host := reference.Domain(ref)
	says := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(text, w) {
				return true
			}
		}

		return false
	}

	var out string

	switch {
	case client.IsErrConnectionFailed(err):
		out = e.unreachable(err).Error()
	case says("no space left"):
		out = "no space is left on the disk of the container engine"
	case says("no image found in", "no matching manifest", "does not match the specified platform"):
		out = "it has no variant for linux/" + runtime.GOARCH
	case says(refusals...) && p.Secret != "":
		out = "registry " + host + " refuses the credentials in secret " + p.Secret + " for it, or does not have it"
	case says(refusals...) && authorised:
		out = "registry " + host + " refuses the credentials of this node for it, or does not have it"
	case says(refusals...):
		out = "registry " + host + " wants credentials for it, or does not have it; name a secret with USER:PASSWORD in " +
			"registry_auth of the job file"
	case says("manifest unknown", "name unknown", "not found", "no such image", "unknown manifest"):
		out = "not found in registry " + host
	case says("dial tcp", "no such host", "connection refused", "i/o timeout", "network is unreachable",
		"server gave http"):
		out = "registry " + host + " cannot be reached: " + err.Error()
	default:
		out = "cannot be pulled: " + err.Error()
	}

	return &ImageError{p.Image, out, err}
}

// refusals are words by which registries and engines refuse somebody an image.
var refusals = []string{
	"unauthorized", "authentication required", "access denied", "denied:", "forbidden", "invalid username/password",
	"no basic auth credentials",
}

// dockerHub is the registry of names without one, and hubKey the name that docker login gives it.
const (
	dockerHub = "docker.io"
	hubKey    = "https://index.docker.io/v1/"
)

// credentialsFor returns what the engine is to show the registry of an image for a job: what that has itself, else what
// the node has.
func (e *Engine) credentialsFor(p Pull, ref reference.Named) (string, error) {
	if p.Secret == "" {
		return e.credentials(ref)
	}

	user, password, ok := strings.Cut(strings.TrimSpace(p.Auth), ":")
	if !ok || user == "" || password == "" {
		return "", fmt.Errorf("secret %s must be USER:PASSWORD to be used for a registry", p.Secret)
	}

	return encode(registry.AuthConfig{Username: user, Password: password, ServerAddress: reference.Domain(ref)})
}

// credentials returns what the engine is to show the registry of an image, "" for nothing.
func (e *Engine) credentials(ref reference.Named) (string, error) {
	if e.opt.Auth == "" {
		return "", nil
	}

	var file struct {
		Auths map[string]struct {
			Auth          string `json:"auth"`
			IdentityToken string `json:"identitytoken"`
		} `json:"auths"`
	}

	text, err := os.ReadFile(e.opt.Auth)
	if err == nil {
		err = json.Unmarshal(text, &file)
	}

	if err != nil {
		return "", fmt.Errorf("read the credentials for registries: %w", err)
	}

	for name := ref.Name(); name != ""; {
		found, ok := file.Auths[name]
		if !ok && name == dockerHub {
			found, ok = file.Auths[hubKey]
		}

		if ok {
			return decode(found.Auth, found.IdentityToken, reference.Domain(ref))
		}

		at := strings.LastIndexByte(name, '/')
		name = name[:max(at, 0)]
	}

	return "", nil
}

// decode reads credentials from the form in which a file has them.
func decode(auth, token, server string) (string, error) {
	plain, err := base64.StdEncoding.DecodeString(auth)
	user, password, ok := strings.Cut(string(plain), ":")
	if err != nil || !ok && token == "" {
		return "", errors.New("the credentials of registry " + server + " are not valid")
	}

	return encode(registry.AuthConfig{Username: user, Password: password, IdentityToken: token, ServerAddress: server})
}

// encode writes credentials as an engine wants them.
func encode(auth registry.AuthConfig) (string, error) {
	text, err := json.Marshal(auth) //nolint:gosec // they are for the engine
	if err != nil {
		return "", err
	}

	return base64.URLEncoding.EncodeToString(text), nil
}
