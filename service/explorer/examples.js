// Programs to begin with, that come with the page, and what to try with them. `read` names the axes of tiles.

const EXAMPLES = [
  {
    file: 'perceptron.hlo', title: 'Perceptron, a training step', mesh: [['data', '4'], ['model', '2']], machine: 'h100-dgx',
    annotations: [{ name: 'x', spec: 'data,None' }, { name: 'y', spec: 'data,None' }, { name: 'w1', spec: 'None,model' }, { name: 'w2', spec: 'model,None' }],
  },
  {
    file: 'transformer.hlo', title: 'Transformer, a training step from JAX', mesh: [['data', '2'], ['model', '2']], machine: 'h100-dgx',
    annotations: [], read: { data: 2, model: 2 },
  },
];
