package aws_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"trainyard/internal/cloud"
	"trainyard/internal/cloud/aws"
	"trainyard/internal/cloud/cloudtest"
	"trainyard/internal/fleet"
)

func TestProviderKeepsTheContract(t *testing.T) {
	t.Parallel()
	cloudtest.Run(t, func(t *testing.T) cloudtest.Env {
		t.Helper()
		env := newWorld(t, true).env()
		env.Once = cloudtest.Always

		return env
	})
}

// A server that knows no client tokens, as moto itself, gives two machines to one lease;
// both must be seen, so that one is given back.
func TestProviderKeepsTheContractWhereTokensAreIgnored(t *testing.T) {
	t.Parallel()
	cloudtest.Run(t, func(t *testing.T) cloudtest.Env {
		t.Helper()
		env := newWorld(t, false).env()
		env.Cannot = map[string]string{
			"the list goes on after a hundred machines": "it was, with tokens, where it is the same",
		}

		return env
	})
}

// env is the world as the contract wants it.
func (w *world) env() cloudtest.Env {
	plain := fleet.Offer{Provider: "aws", Type: "g5.xlarge", Region: home, GPU: "A10G", GPUs: 1}
	spot, unknown := plain, plain
	spot.Spot, spot.Zone = true, home+"b"
	unknown.Type = "g99.9xlarge"
	changing := action("RunInstances", "TerminateInstances")
	next := func(trouble cloudtest.Trouble) func(*testing.T) {
		return func(*testing.T) { w.Next(action("RunInstances"), trouble) }
	}

	return cloudtest.Env{
		Provider: w.provider(),
		Yard:     w.yard,
		Offer:    plain,
		Spot:     spot,
		Unknown:  unknown,
		Many:     200,
		Machines: w.machines,
		// A shortage is a failure on Amazon's side by its status, and a refusal by its code.
		NoCapacity: next(
			refuse(
				http.StatusInternalServerError,
				"InsufficientInstanceCapacity",
				"We currently do not have sufficient g5.xlarge capacity",
			),
		),
		NoQuota: next(
			refuse(
				http.StatusBadRequest,
				"VcpuLimitExceeded",
				"You have requested more vCPU capacity than your current vCPU limit of 0 allows",
			),
		),
		LowPrice: next(
			refuse(
				http.StatusBadRequest,
				"SpotMaxPriceTooLow",
				"Your Spot request price of 0.01 is lower than the minimum required price",
			),
		),
		LoseReply: func(*testing.T) { w.Next(changing, w.loseAny) },
		Cut:       func(*testing.T) { w.Next(changing, cloudtest.Cut) },
		Down: func(*testing.T) func() {
			return w.While(cloudtest.Any, refuse(http.StatusServiceUnavailable, "Unavailable", "The server is overloaded"))
		},
		Hang: func(*testing.T) func() {
			until := make(chan struct{})
			stop := w.While(cloudtest.Any, cloudtest.Hang(until))

			return func() {
				stop()
				close(until)
			}
		},
		Lag: func(*testing.T) func() { return w.lag() },
		Impostor: func(*testing.T) cloud.Provider {
			return w.provider(func(c *aws.Config) { c.Credentials = keys("AKIATHIEF") })
		},
		TakeBack: w.takeBack,
		Stray: func(t *testing.T) string {
			t.Helper()
			return w.put(t, map[string]string{cloud.TagYard: w.yard})
		},
		Foreign: func(t *testing.T) string {
			t.Helper()
			return w.put(t, map[string]string{cloud.TagYard: w.yard + "-other", cloud.TagLease: "l1"})
		},
	}
}

// loseAny lets the usual rules carry a request out, and loses the answer.
func (w *world) loseAny(rw http.ResponseWriter, a *cloudtest.Request) {
	if action("RunInstances")(a) {
		w.runs(httptest.NewRecorder(), a)
	} else {
		w.terminate(httptest.NewRecorder(), a)
	}

	cloudtest.Cut(rw, a)
}
