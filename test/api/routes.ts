/** `METHOD /path` from the tree that Fastify prints. */
export function routesOf(tree: string): string[] {
  const above: string[] = [];
  return tree.split('\n').flatMap((line) => {
    const [, indent, path, methods] = /^((?:│ {3}| {4})*)[├└]── (\S*)(?: \(([A-Z, ]+)\))?/.exec(line) ?? [];
    if (indent === undefined || path === undefined) return [];
    above.length = indent.length / 4;
    above.push(path);
    return (methods ?? '')
      .split(', ')
      .flatMap((method) => (['GET', 'POST', 'PUT', 'PATCH', 'DELETE'].includes(method) ? [`${method} ${above.join('')}`] : []));
  });
}
