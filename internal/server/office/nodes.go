package office

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (o *Office) nodeRoutes() {
	const tag = "nodes"
	huma.Register(o.API, o.op("list-nodes", http.MethodGet, "/api/v1/nodes", "List nodes by name", tag), o.listNodes)
	huma.Register(o.API, o.op("get-node", http.MethodGet, "/api/v1/nodes/{node}", "Show a node", tag), o.getNode)
	huma.Register(o.API, o.op("drain-node", http.MethodPost, "/api/v1/nodes/{node}/drain", "Let nothing new onto a node", tag), o.drainNode)
	huma.Register(o.API, o.op("undrain-node", http.MethodPost, "/api/v1/nodes/{node}/undrain", "Open a drained node again", tag), o.undrainNode)
	huma.Register(o.API, o.op("release-gpu", http.MethodPost, "/api/v1/nodes/{node}/gpus/{gpu}/release",
		"Let a GPU back into use that its agent has taken out of use", tag), o.releaseGPU)
	remove := o.op("remove-node", http.MethodDelete, "/api/v1/nodes/{node}", "Take a node out of the yard", tag)
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(o.API, remove, o.removeNode)
}

func (o *Office) listNodes(ctx context.Context, in *struct{ Paging }) (*body[api.NodePage], error) {
	if err := o.Allow(ctx, tenant.ReadNodes, ""); err != nil {
		return nil, o.Fail(ctx, err)
	}
	page := api.NodePage{Nodes: []api.Node{}}
	err := o.Query(ctx, func(y *yardmaster.Yard) {
		infos := y.Nodes(id.Node(in.Cursor), in.Limit+1)
		if len(infos) > in.Limit {
			infos = infos[:in.Limit]
			page.Next = string(infos[len(infos)-1].ID)
		}
		for i := range infos {
			page.Nodes = append(page.Nodes, o.toNode(&infos[i]))
		}
	})
	if err != nil {
		return nil, o.Fail(ctx, err)
	}
	return &body[api.NodePage]{page}, nil
}

// NodeInput names a node in a path.
type NodeInput struct {
	Node string `path:"node" maxLength:"63"`
}

func (o *Office) readNode(ctx context.Context, name string) (*body[api.Node], error) {
	var info yardmaster.NodeInfo
	var missing error
	err := o.Query(ctx, func(y *yardmaster.Yard) { info, missing = y.NodeByName(id.Node(name)) })
	if err == nil {
		err = missing
	}
	if err != nil {
		return nil, o.Fail(ctx, err)
	}
	return &body[api.Node]{o.toNode(&info)}, nil
}

func (o *Office) getNode(ctx context.Context, in *NodeInput) (*body[api.Node], error) {
	if err := o.Allow(ctx, tenant.ReadNodes, ""); err != nil {
		return nil, o.Fail(ctx, err)
	}
	return o.readNode(ctx, in.Node)
}

type drainInput struct {
	NodeInput
	Body *api.DrainRequest `required:"false"`
}

func (o *Office) drainNode(ctx context.Context, in *drainInput) (*body[api.Node], error) {
	m := yardmaster.Drain{Node: id.Node(in.Node), By: o.Caller(ctx).User, On: true}
	if in.Body != nil {
		m.Stop = in.Body.Stop
	}
	return o.changeNode(ctx, in.Node, m)
}

func (o *Office) undrainNode(ctx context.Context, in *NodeInput) (*body[api.Node], error) {
	return o.changeNode(ctx, in.Node, yardmaster.Drain{Node: id.Node(in.Node), By: o.Caller(ctx).User})
}

func (o *Office) changeNode(ctx context.Context, name string, m yardmaster.Message) (*body[api.Node], error) {
	if err := o.Allow(ctx, tenant.ChangeNodes, ""); err != nil {
		return nil, o.Fail(ctx, err)
	}
	if _, err := o.Do(ctx, m); err != nil {
		return nil, o.Fail(ctx, err)
	}
	return o.readNode(ctx, name)
}

func (o *Office) removeNode(ctx context.Context, in *NodeInput) (*struct{}, error) {
	if err := o.Allow(ctx, tenant.ChangeNodes, ""); err != nil {
		return nil, o.Fail(ctx, err)
	}
	if _, err := o.Do(ctx, yardmaster.RemoveNode{Node: id.Node(in.Node), By: o.Caller(ctx).User}); err != nil {
		return nil, o.Fail(ctx, err)
	}
	return nil, nil
}

type gpuInput struct {
	NodeInput
	GPU int `path:"gpu" minimum:"0" maximum:"63"`
}

// releaseGPU writes the release down; the agent is told with the answer to its next report.
func (o *Office) releaseGPU(ctx context.Context, in *gpuInput) (*body[api.Node], error) {
	if err := o.Allow(ctx, tenant.ChangeNodes, ""); err != nil {
		return nil, o.Fail(ctx, err)
	}
	answer, err := o.Do(ctx, yardmaster.ReleaseGPU{Node: id.Node(in.Node), GPU: in.GPU, By: o.Caller(ctx).User})
	if err != nil {
		return nil, o.Fail(ctx, err)
	}
	if e, ok := answer.(yardmaster.Event); ok {
		o.seen.release(&e)
	}
	return o.readNode(ctx, in.Node)
}
