package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
	"trainyard/internal/job"
	"trainyard/internal/provision"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) offerRoutes() {
	huma.Register(s.api, s.op("list-offers", http.MethodGet, "/api/v1/offers",
		"List offers that can be provisioned, cheapest first", "provisioning"), s.listOffers)
}

type offersInput struct {
	Paging
	GPU      string `query:"gpu" maxLength:"63" doc:"GPU type, e.g. A100 or A100:80GB"`
	Provider string `query:"provider" maxLength:"63"`
	Region   string `query:"region" maxLength:"63"`
	Spot     string `query:"spot" enum:"true,false" doc:"true: only spot offers; false: only on-demand offers"`
}

func (s *Server) listOffers(ctx context.Context, in *offersInput) (*httpapi.Body[api.OfferPage], error) {
	if err := allow(ctx, tenant.ReadOffers, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	var kind job.GPUKind
	if in.GPU != "" {
		if err := kind.UnmarshalText([]byte(in.GPU)); err != nil {
			return nil, s.fail(
				ctx,
				fault.New(fault.Invalid, "gpu_kind", "%v", err).WithField("gpu").WithRemedy("e.g. A100 or A100:80GB"),
			)
		}
	}

	var offers []fleet.Offer

	var closed []provision.Backoff
	if err := s.query(ctx, func(y *yardmaster.Yard) { offers, closed = y.Offers(s.Clock.Now()) }); err != nil {
		return nil, s.fail(ctx, err)
	}

	page := api.OfferPage{Offers: []fleet.Offer{}, Closed: []api.Closing{}}

	if in.Cursor != "" {
		at := slices.IndexFunc(offers, func(f fleet.Offer) bool { return f.Name == in.Cursor })
		if at < 0 {
			return nil, s.fail(ctx, badCursor(in.Cursor))
		}

		offers, closed = offers[at+1:], nil
	}

	for i := range offers {
		f := &offers[i]
		if in.GPU != "" && !kind.Matches(f.GPU, f.GPUMemory) || in.Provider != "" && f.Provider != in.Provider ||
			in.Region != "" && f.Region != in.Region || in.Spot != "" && f.Spot != (in.Spot == "true") {
			continue
		}

		if len(page.Offers) == in.Limit {
			page.Next = page.Offers[in.Limit-1].Name
			break
		}

		page.Offers = append(page.Offers, *f)
	}

	for _, c := range closed {
		page.Closed = append(
			page.Closed,
			api.Closing{
				What:   c.What,
				Why:    c.Why,
				Since:  shown(c.Since),
				Until:  shown(c.Until),
				Times:  c.Times,
				Offers: c.Offers,
			},
		)
	}

	return &httpapi.Body[api.OfferPage]{Body: page}, nil
}
