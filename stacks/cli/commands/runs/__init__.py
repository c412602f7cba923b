"""Commands that plan and do: `preview`, `up`, `refresh`, `destroy`, `import`, `expire`, `drift`."""
